use super::*;
use crate::kernel::fake::{Fake, link};

const NOW: Instant = Instant::ZERO;

/// Host mode with a kernel, which answers each question for a source address with `source`.
struct World {
    fake: Fake,
    routes: Routes<Fake>,
    captures: Captures,
}

impl World {
    fn new(source: &str) -> Self {
        let fake = Fake::default();
        fake.state().links = vec![link(9, "mpip0")];
        fake.state().source = source.parse().ok();
        let settings = HostMode::default();
        let device = link(9, "mpip0");
        let links = [device.clone()];
        let recorded = fake.recorded("mpip0");
        let routes =
            Routes::take_over(fake.clone(), settings.clone(), true, recorded, device, &links);
        let mut routes = routes.expect("nothing is refused");
        routes.device_is(true);
        routes.started(NOW, true);
        Self { fake, routes, captures: Captures::new(settings) }
    }

    /// Captures the first `count` addresses of a network.
    fn capture(&mut self, count: usize) {
        let address = |n: usize| IpAddr::from(Ipv4Addr::from(0xc613_0001 + n as u32));
        let capture = Capture {
            peer: "b".to_owned(),
            prefixes: (0..count).map(|n| Prefix::host(address(n))).collect(),
            translated: vec![],
            asks_udp_ports: false,
            nats: vec![],
            fail_closed: true,
        };
        self.captures.apply(NOW, capture, &mut self.routes);
    }

    /// Asks again until nothing is left to be asked; how often that was.
    fn ask_all(&mut self) -> usize {
        let mut times = 0;
        while let Some(due) = self.captures.next_timeout() {
            self.captures.ask_again(due, &mut self.routes);
            self.routes.apply(due);
            times += 1;
        }
        times
    }

    fn sources(&self) -> Vec<Option<IpAddr>> {
        let state = self.fake.state();
        let mut sources: Vec<_> =
            state.routes.iter().filter(|route| route.link == 9).map(|route| route.source).collect();
        sources.dedup();
        sources
    }
}

#[test]
fn only_what_changed_is_asked_of_the_kernel() {
    for count in [1, 100, 1_000] {
        let mut world = World::new("198.18.0.1");
        world.fake.take_requests();
        world.capture(count);
        // For each the source, a route to the device, and one that refuses.
        assert_eq!(world.fake.take_requests(), 3 * count as u64);
        world.capture(count);
        world.routes.apply(NOW);
        world.routes.follow(NOW, &[link(9, "mpip0")]);
        world.routes.apply(NOW);
        assert_eq!(world.fake.take_requests(), 0, "nothing changed");
        world.capture(count + 1);
        assert_eq!(world.fake.take_requests(), 3, "one more");
        world.capture(count);
        assert_eq!(world.fake.take_requests(), 2, "one less");
        // A host's address changed: one list of the table, in which nothing is missing.
        world.routes.look(false).expect("a list");
        world.routes.apply(NOW);
        assert_eq!(world.fake.take_requests(), 1);
        world.captures.set_inner_mtu("b", 1_400, &mut world.routes);
        world.routes.apply(NOW);
        assert_eq!(world.fake.take_requests(), count as u64, "each route has the MTU");
    }
}

#[test]
fn source_addresses_follow_others_routes_a_few_at_a_time() {
    let mut world = World::new("198.18.0.1");
    world.capture(1_000);
    world.fake.take_requests();
    let own = |text: &str| text.parse::<Prefix>().expect("valid");
    // Routes that concern none of them.
    for elsewhere in ["198.18.0.0/24", "2001:db8::/32", "198.20.0.0/16", "198.19.0.0/32"] {
        world.captures.route_changed(own(elsewhere));
    }
    assert_eq!(world.captures.next_timeout(), None);
    world.captures.route_changed(own("198.19.0.64/26"));
    assert_eq!(world.ask_all(), 1);
    assert_eq!(world.fake.take_requests(), 64);
    // Another default route, and each begins elsewhere.
    world.fake.state().source = "198.18.1.1".parse().ok();
    world.captures.route_changed(own("0.0.0.0/0"));
    assert_eq!(world.ask_all(), 1_000_usize.div_ceil(ASKED_AT_ONCE));
    assert_eq!(world.fake.take_requests(), 2_000);
    assert_eq!(world.sources(), ["198.18.1.1".parse().ok()]);
    // Nothing leads there: they begin where paths do.
    world.fake.state().source = None;
    world.captures.set_own(vec!["198.18.7.7".parse().expect("valid")], &mut world.routes);
    world.captures.anything_changed();
    world.ask_all();
    assert_eq!(world.sources(), ["198.18.7.7".parse().ok()]);
}

#[test]
fn routes_that_vanish_with_their_source_address_are_set_again() {
    let mut world = World::new("198.18.0.1");
    world.capture(2);
    // The host loses the address, and with it the kernel these routes, of which it does not tell.
    world.fake.lose_routes(9);
    world.fake.state().source = "198.18.1.1".parse().ok();
    world.captures.anything_changed();
    world.routes.look(false).expect("a list");
    world.ask_all();
    assert_eq!(world.sources(), ["198.18.1.1".parse().ok()]);
    assert_eq!(world.fake.shown().len(), 4);
}

#[test]
fn what_is_not_captured_any_more_is_forgotten() {
    let mut world = World::new("198.18.0.1");
    world.capture(10);
    assert!(world.captures.fails_closed("b"));
    world.capture(0);
    assert!(!world.captures.fails_closed("b"));
    assert!(world.captures.sources.is_empty() && world.fake.shown().is_empty());
}

#[test]
fn multicast_stays_where_it_is() {
    let shown = |text: &str| {
        let parts = one_receiver(text.parse().expect("valid"));
        parts.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(shown("198.18.0.0/15"), ["198.18.0.0/15"]);
    let below = ["128.0.0.0/2", "192.0.0.0/3"];
    assert_eq!(shown("128.0.0.0/1"), below);
    assert_eq!(shown("0.0.0.0/0"), [&below[..], &["0.0.0.0/1"]].concat());
    assert_eq!(shown("224.0.0.0/4"), Vec::<String>::new());
    assert_eq!(shown("240.0.0.0/5"), Vec::<String>::new());
    assert_eq!(shown("::/0"), ["8000::/1", "::/1"]);
}
