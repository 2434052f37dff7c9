//! Budgets over periods, restarts and wrong clocks.

use std::fs;

use mpip_testing::Directory;

use super::ledger::REMEMBERED;
use super::*;

/// 2026-11-25 00:00 UTC.
const WEDNESDAY: u64 = 1_795_564_800;

struct World {
    directory: Directory,
    budgets: Budgets,
    now: Instant,
    unix: u64,
    /// What the path of each interface has carried since the daemon began.
    carried: BTreeMap<&'static str, u64>,
}

fn settings(list: &[(&str, u64, Period)]) -> BTreeMap<String, PathProperties> {
    let properties = |&(interface, bytes, period): &(&str, u64, Period)| {
        let label = (interface == "wwan0").then(|| "LTE".to_owned());
        let budget = Some(Budget { bytes, period });
        (
            interface.to_owned(),
            PathProperties { label, metered: true, budget, ..PathProperties::default() },
        )
    };
    list.iter().map(properties).collect()
}

impl World {
    fn new(list: &[(&str, u64, Period)]) -> Self {
        let directory = Directory::new();
        let now = Instant::from_millis(1_000);
        let budgets = Budgets::open(now, &directory.join("mpip0.toml"));
        let mut world = Self { directory, budgets, now, unix: WEDNESDAY, carried: BTreeMap::new() };
        world.follow(list);
        world
    }

    fn follow(&mut self, list: &[(&str, u64, Period)]) {
        self.budgets.follow(self.now, Duration::from_secs(self.unix), &settings(list));
    }

    fn file(&self) -> PathBuf {
        self.directory.join("mpip0.budgets")
    }

    fn end(&mut self, orderly: bool) {
        let Ending { writer, text } = self.budgets.end();
        // Nobody waits for what was not handed over before.
        let text = text.filter(|_| orderly);
        Ending { writer, text }.finish(Duration::from_secs(10));
    }

    /// Another daemon begins where this one ended, in order or not.
    fn restart(&mut self, list: &[(&str, u64, Period)], orderly: bool) {
        self.end(orderly);
        self.budgets = Budgets::open(self.now, &self.directory.join("mpip0.toml"));
        self.carried.clear();
        self.follow(list);
    }

    /// After `seconds` the path of `interface` has carried `bytes` more. Returns the events.
    fn carry(&mut self, seconds: u64, interface: &'static str, bytes: u64) -> Vec<String> {
        self.now += Duration::from_secs(seconds);
        self.unix += seconds;
        *self.carried.entry(interface).or_default() += bytes;
        let traffic = self.carried.iter().zip(0..).map(|((interface, bytes), id)| PathTraffic {
            place: 0,
            id,
            opened: Instant::ZERO,
            interface,
            bytes: *bytes,
        });
        let unix = Duration::from_secs(self.unix);
        let changes = self.budgets.count(self.now, unix, traffic);
        changes.into_iter().map(|change| change.message).collect()
    }

    /// Waits for the thread that writes what is known now.
    fn wait_until_written(&self) {
        let text = file::text(&self.budgets.ledger);
        while fs::read_to_string(self.file()).is_ok_and(|written| written != text) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn used(&self) -> Vec<u64> {
        self.budgets.status().iter().map(|budget| budget.used_bytes).collect()
    }

    fn is_used_up(&self) -> bool {
        !self.budgets.used_up().is_empty()
    }
}

impl Drop for World {
    /// The thread that writes ends before its directory goes.
    fn drop(&mut self) {
        self.end(false);
    }
}

const GB: u64 = 1_000_000_000;
const DAILY: [(&str, u64, Period); 1] = [("wwan0", 2 * GB, Period::Day)];
const MONTHLY: [(&str, u64, Period); 1] = [("wwan0", 50 * GB, Period::Month)];

#[test]
fn a_budget_warns_is_used_up_and_begins_anew_with_the_day() {
    let mut world = World::new(&DAILY);
    assert!(world.carry(1, "wwan0", 0).is_empty());
    assert!(world.carry(60, "wwan0", GB).is_empty());
    let warning = "80 % of the budget of LTE is used: 1.6 GB of 2 GB/day";
    assert_eq!(world.carry(60, "wwan0", 600_000_000), [warning]);
    assert!(world.carry(60, "wwan0", 100_000_000).is_empty(), "once");
    let used_up = "budget of LTE is used up: 2.0 GB of 2 GB/day; again at 00:00 UTC";
    assert_eq!(world.carry(60, "wwan0", 300_000_000), [used_up]);
    assert!(world.is_used_up());
    let faults = world.budgets.faults(world.now + Duration::from_secs(5));
    assert_eq!((faults[0].what.as_str(), faults[0].since_ms), (used_up, 5_000.0));
    assert!(world.carry(86_000 - 241, "wwan0", GB).is_empty());
    assert_eq!(world.used(), [3 * GB]);
    assert_eq!(world.carry(401, "wwan0", 5), ["LTE has its budget again: 2 GB/day"]);
    assert!(!world.is_used_up());
    assert_eq!((world.used(), world.budgets.faults(world.now).len()), (vec![5], 0));
}

#[test]
fn a_month_ends_with_its_last_day() {
    let mut world = World::new(&MONTHLY);
    assert!(world.carry(1, "wwan0", 0).is_empty());
    let used_up = "budget of LTE is used up: 50.0 GB of 50 GB/month; again at 2026-12-01 00:00 UTC";
    assert_eq!(world.carry(60, "wwan0", 50 * GB), [used_up]);
    assert!(world.carry(6 * 86_400 - 62, "wwan0", 0).is_empty());
    assert_eq!(world.budgets.status()[0].period_ends_unix_s, world.unix + 1);
    assert_eq!(world.carry(1, "wwan0", 0), ["LTE has its budget again: 50 GB/month"]);
    // December has 31 days, and February 28.
    for (month, days) in [("2026-12", 31), ("2027-02", 28), ("2028-02", 29)] {
        let first = u64::from(day::parse(&format!("{month}-01")).expect("a day")) * DAY;
        assert_eq!(end(Period::Month, first) - first, days * DAY, "{month}");
        let last = Duration::from_secs(first + days * DAY - 1);
        assert_eq!(start(Period::Month, last), first, "{month}");
    }
}

#[test]
fn what_is_used_outlives_a_restart_and_at_most_a_minute_of_it_a_kill() {
    let mut world = World::new(&DAILY);
    world.carry(1, "wwan0", 0);
    world.carry(60, "wwan0", GB);
    world.restart(&DAILY, true);
    assert_eq!(world.used(), [GB]);
    // The first count is written at once, the next one after a minute.
    for bytes in [100, 200, 300] {
        world.carry(10, "wwan0", bytes);
    }
    world.restart(&DAILY, false);
    assert_eq!(world.used(), [GB + 100]);
    world.carry(1, "wwan0", 10);
    world.wait_until_written();
    world.carry(61, "wwan0", 20);
    world.restart(&DAILY, false);
    assert_eq!(world.used(), [GB + 130]);
    // That it is used up is written at once.
    world.carry(1, "wwan0", 5);
    world.wait_until_written();
    assert_eq!(world.carry(1, "wwan0", GB).len(), 1);
    world.wait_until_written();
    world.restart(&DAILY, false);
    assert!(world.is_used_up(), "from the start");
    assert!(world.carry(1, "wwan0", 0).is_empty(), "no event again");
    assert_eq!(world.budgets.faults(world.now).len(), 1);
    world.restart(&DAILY, true);
    world.unix += 86_400;
    world.restart(&DAILY, true);
    assert!(!world.is_used_up(), "another day");
}

#[test]
fn a_damaged_file_is_set_aside_and_counting_begins_anew() {
    let whole = file::text(&[("wwan0".to_owned(), vec![])].into());
    let header = whole.split_inclusive('\n').next().expect("a line");
    for (text, expected) in [
        (String::new(), "line 1: expected `# What is used"),
        (format!("{header}wwan0 day 1795564800 19"), "the last line is missing"),
        (format!("{header}wwan0 day 1795564800 19\nend 2\n"), "line 3: expected `end 1`"),
        (format!("{header}wwan0 week 0 1\nend 1\n"), "line 2: expected an interface, a period"),
        (format!("{header}wwan0 day 0 -1\nend 1\n"), "line 2: expected an interface, a period"),
        (format!("{header}wwan0 day 0 1 1\nend 1\n"), "line 2: expected an interface, a period"),
        (format!("{header}end 0\nwwan0 day 0 1\n"), "line 3: expected nothing behind"),
        (format!("{header}{}end 5\n", "wwan0 day 0 1\n".repeat(5)), "line 6: expected no more"),
    ] {
        let mut world = World::new(&DAILY);
        fs::write(world.file(), &text).expect("writable");
        world.restart(&DAILY, true);
        let faults = world.budgets.faults(world.now);
        assert!(faults[0].what.contains(expected), "{}", faults[0].what);
        let aside = world.directory.join("mpip0.budgets.damaged");
        assert_eq!(fs::read_to_string(aside).expect("set aside"), text);
        assert!(!world.file().exists());
        world.carry(1, "wwan0", 7);
        world.restart(&DAILY, true);
        assert_eq!((world.used(), world.budgets.faults(world.now).len()), (vec![7], 0));
    }
}

#[test]
fn a_wrong_clock_loses_nothing_of_a_day() {
    let mut world = World::new(&DAILY);
    world.carry(1, "wwan0", 3 * GB);
    let right = world.unix;
    assert!(world.is_used_up());
    // It begins in 1970, and then asks for the time.
    world.unix = 60;
    world.restart(&DAILY, true);
    world.carry(1, "wwan0", 100);
    assert_eq!(world.used(), [100]);
    world.unix = right + 100;
    world.carry(1, "wwan0", 11);
    assert_eq!(world.used(), [3 * GB + 11]);
    assert!(world.is_used_up());
    for year in 1..10 {
        world.unix = right + year * 365 * 86_400;
        world.carry(1, "wwan0", 1);
    }
    assert!(world.budgets.ledger["wwan0"].len() <= REMEMBERED);
}

#[test]
fn interfaces_have_budgets_of_their_own_and_only_from_when_they_have_one() {
    let mut world = World::new(&[]);
    assert_eq!(world.budgets.next_timeout(), None);
    world.carried.insert("wwan0", 9 * GB);
    world.follow(&DAILY);
    assert_eq!(world.budgets.next_timeout(), Some(world.now));
    assert!(world.carry(0, "wwan0", 0).is_empty());
    assert_eq!(world.used(), [0], "what it carried before is not counted");
    let both = [DAILY[0], ("wwan1", GB, Period::Month)];
    world.follow(&both);
    world.carry(1, "wwan0", 5);
    assert_eq!(world.carry(1, "wwan1", GB).len(), 1);
    assert_eq!(world.used(), [5, GB]);
    assert_eq!(world.budgets.used_up(), ["wwan1".to_owned()].into());
    // A larger one is not used up, and says so without an event.
    world.follow(&[DAILY[0], ("wwan1", 2 * GB, Period::Month)]);
    assert!(!world.is_used_up());
    assert!(world.carry(1, "wwan1", 0).is_empty());
    // Without one nothing is counted; the ledger remembers.
    world.follow(&[]);
    assert_eq!((world.budgets.next_timeout(), world.used()), (None, vec![]));
}

#[test]
fn a_path_that_begins_anew_is_counted_from_its_beginning() {
    let mut world = World::new(&DAILY);
    let path = |opened, bytes| PathTraffic {
        place: 0,
        id: 0,
        opened: Instant::from_millis(opened),
        interface: "wwan0",
        bytes,
    };
    let unix = Duration::from_secs(WEDNESDAY);
    for paths in [vec![], vec![path(1, 100)], vec![path(1, 150)], vec![path(9, 170)], vec![]] {
        world.budgets.count(world.now, unix, paths.into_iter());
    }
    assert_eq!(world.used(), [150 + 170]);
}
