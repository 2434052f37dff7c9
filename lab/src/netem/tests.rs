use super::*;

fn scenario(link: &str, rest: &str) -> Scenario {
    let text = format!(
        "title = \"t\"\nduration = \"10 s\"\nsystems = [\"tcp\"]\n\
         [[interface]]\nhost = \"client\"\nname = \"a\"\naddress = \"198.18.1.1\"\n\
         [[interface]]\nhost = \"server\"\nname = \"a\"\naddress = \"198.18.1.2\"\n\
         [[link]]\nname = \"a\"\nends = [\"client.a\", \"server.a\"]\n{link}\n{rest}\n\
         [[traffic]]\nkind = \"tcp\"\nfrom = \"client\"\nto = \"server\"\n"
    );
    Scenario::parse("t.toml", &text, &mut |_| Ok("1\n2\n".to_owned())).expect("valid")
}

/// The `tc` commands for one direction of the link, without what they have in common.
fn tc(link: &str, forward: bool) -> Vec<String> {
    let scenario = scenario(link, "");
    settings(&scenario, 0, forward, scenario.links[0].direction(forward))
        .iter()
        .map(|line| line.join(" ").replace("tc qdisc replace dev ", ""))
        .collect()
}

#[test]
fn a_rate_is_a_token_bucket_with_the_queue_behind_it() {
    assert_eq!(
        tc("rate = \"9.3 Mbit/s\"\nqueue = \"100 packets\"", true),
        [
            "l0a root handle 1: tbf rate 9300000bit burst 3028 limit 154428",
            "l0a parent 1:1 handle 10: pfifo limit 100",
        ]
    );
    assert_eq!(
        tc("rate = \"1 Gbit/s\"\nqueue = \"625 kB\"\noverhead = 38", false),
        [
            "l0d root handle 1: tbf rate 1000000000bit burst 31250 limit 656250 overhead 24",
            "l0d parent 1:1 handle 10: bfifo limit 625000",
        ]
    );
    assert_eq!(
        tc("rate = \"10 Mbit/s\"\nqueue = \"50 packets\"\ncodel = { target = \"7 ms\" }", true)[1],
        "l0a parent 1:1 handle 10: codel limit 50 target 7000us interval 100000us"
    );
    assert_eq!(tc("", true), [""; 0]);
}

#[test]
fn delay_jitter_and_random_faults_are_netems() {
    const HEAD: &str = "l0c root handle 2: netem limit 200000";
    assert_eq!(
        tc("delay = \"5 ms\"", true),
        [format!("{HEAD} delay 5000us loss random 0% duplicate 0% corrupt 0%")]
    );
    assert_eq!(
        tc("delay = \"100 ms\"\njitter = \"50 ms\"\nloss = \"0.1 %\"", true),
        [format!(
            "{HEAD} delay 100000us 50000us distribution normal loss random 0.1% duplicate 0% \
             corrupt 0%"
        )]
    );
    assert_eq!(
        tc("delay = \"2500 us\"\njitter = \"1 ms\"\nin_order = true", true),
        [format!(
            "{HEAD} delay 2500us 1000us distribution normal loss random 0% duplicate 0% corrupt 0% \
             rate 1000gbit"
        )]
    );
    assert_eq!(
        tc("duplicate = \"1 %\"\ncorrupt = \"0.5 %\"", true),
        [format!("{HEAD} delay 0us loss random 0% duplicate 1% corrupt 0.5%")]
    );
    let burst = "burst_loss = { good_to_bad = \"0.25 %\", bad_to_good = \"25 %\", \
                 good_loss = \"1 %\", bad_loss = \"50 %\" }";
    assert_eq!(
        tc(burst, true),
        [format!("{HEAD} delay 0us loss gemodel 0.25% 25% 50% 1% duplicate 0% corrupt 0%")]
    );
}

#[test]
fn directions_have_their_own_settings_and_devices() {
    let link = "rate = \"10 Mbit/s\"\ndelay = \"5 ms\"\n[link.reverse]\nrate = \"1 Mbit/s\"\nloss = \"2 %\"";
    let (forward, reverse) = (tc(link, true), tc(link, false));
    assert!(forward[0].starts_with("l0a root handle 1: tbf rate 10000000bit"), "{forward:?}");
    assert!(forward[2].starts_with("l0c root handle 2: netem"), "{forward:?}");
    assert!(reverse[0].starts_with("l0d root handle 1: tbf rate 1000000bit"), "{reverse:?}");
    assert!(reverse[2].contains("l0b root handle 2: netem"), "{reverse:?}");
    assert!(reverse[2].contains("loss random 2%"), "{reverse:?}");
}

#[test]
fn the_schedule_changes_what_it_names() {
    let events = "[[event]]\nat = \"2 s\"\nlink = \"a\"\nrate = \"5 Mbit/s\"\ndirection = \"forward\"\n\
                  [[event]]\nat = \"3 s\"\nlink = \"a\"\nblackhole = true\n\
                  [[event]]\nat = \"4 s\"\nlink = \"a\"\nup = false\nmtu = 1400\n";
    let scenario = scenario("rate = \"10 Mbit/s\"", events);
    let lines = |number: usize| -> Vec<String> {
        change(&scenario, number).iter().map(|line| line.join(" ")).collect()
    };
    let rate = lines(0);
    assert_eq!(rate.len(), 3, "{rate:?}");
    assert!(rate[0].contains("l0a root handle 1: tbf rate 5000000bit"), "{rate:?}");
    assert!(rate[2].contains("loss random 0%"), "{rate:?}");
    let blackhole = lines(1);
    assert!(blackhole[2].contains("dev l0c") && blackhole[2].contains("loss random 100%"));
    assert!(blackhole[3].contains("dev l0d root handle 1: tbf rate 10000000bit"), "{blackhole:?}");
    assert!(blackhole[5].contains("dev l0b") && blackhole[5].contains("loss random 100%"));
    let down = lines(2);
    for expected in ["ip link set l0a down", "ip link set l0b down", "ip link set l0c mtu 1400"] {
        assert!(down.contains(&expected.to_owned()), "{down:?}");
    }
}

#[test]
fn nodes_are_bridges_between_pairs_of_devices() {
    let lines: Vec<String> =
        build(&scenario("mtu = 1400", "")).expect("made").iter().map(|l| l.join(" ")).collect();
    for expected in [
        "ip link add n0 up type bridge mcast_snooping 0",
        "ip link add p0 up mtu 1500 type veth peer name port0 mtu 1500",
        "ip link set p0 master n0",
        "ip link add l0a up mtu 1400 type veth peer name l0b mtu 1400",
        "ip link set l0a master n0",
        "ip link set l0b master l0",
        "ip link set l0c master l0",
        "ip link set l0d master n1",
    ] {
        assert!(lines.contains(&expected.to_owned()), "{expected} in {lines:#?}");
    }
}

#[test]
fn what_the_kernel_cannot_do_is_refused_with_the_link() {
    for (link, rest, reason) in [
        ("trace = \"x\"", "", "link \"a\": a trace"),
        ("overhead = 4", "", "link \"a\": an overhead below 14 bytes"),
        ("", "[[pair]]\nends = [\"client.a\", \"server.a\"]\n", "a limit for a pair"),
        (
            "",
            "[[link]]\nname = \"b\"\nends = [\"client.a\", \"server.a\"]\n",
            "link \"b\": bridges",
        ),
    ] {
        let error = build(&scenario(link, rest)).expect_err(reason);
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn every_scenario_is_translated_or_refused_with_a_reason() {
    let mut translated = 0;
    for loaded in scenarios::all().expect("all are valid") {
        match build(&loaded.scenario) {
            Ok(lines) => {
                translated += 1;
                assert!(lines.iter().flatten().all(|word| word.len() < 64), "{}", loaded.name);
                for number in 0..loaded.scenario.events.len() {
                    assert!(!change(&loaded.scenario, number).is_empty(), "{}", loaded.name);
                }
            }
            Err(reason) => assert!(reason.contains("emulator"), "{}: {reason}", loaded.name),
        }
    }
    assert!(translated > 70, "{translated}");
}

#[test]
fn super_packets_stay_whole_only_if_no_link_treats_packets() {
    let cut = |link: &str, rest: &str| {
        let lines = build(&scenario(link, rest)).expect("the kernel has all of it");
        lines.iter().any(|line| line.join(" ").contains("gso_max_segs 1"))
    };
    assert!(!cut("", ""));
    assert!(cut("rate = \"1 Gbit/s\"", ""));
    assert!(cut("delay = \"1 ms\"", ""));
}

#[test]
fn links_that_only_join_two_interfaces_are_one_pair_of_devices() {
    let lines = |link: &str, rest: &str| -> Vec<String> {
        build(&scenario(link, rest)).expect("made").iter().map(|line| line.join(" ")).collect()
    };
    assert_eq!(lines("", ""), ["ip link add port0 mtu 1500 type veth peer name port1 mtu 1500"]);
    let event = "[[event]]\nat = \"2 s\"\nlink = \"a\"\nup = false\n";
    for (link, rest) in [("delay = \"1 ms\"", ""), ("mtu = 1400", ""), ("", event)] {
        assert!(lines(link, rest)[0].contains("type bridge"), "{link}{rest}");
    }
}
