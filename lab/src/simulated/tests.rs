use super::*;
use crate::scenarios;
use crate::subject::subjects;

fn shortened(name: &str, seconds: u64) -> Scenario {
    let mut scenario = scenarios::find(name).expect("a scenario").scenario;
    scenario.duration = Duration::from_secs(seconds);
    for traffic in &mut scenario.traffic {
        traffic.duration = scenario.duration;
    }
    scenario
}

fn subject(scenario: &Scenario, name: &str) -> Subject {
    subjects(scenario).into_iter().find(|subject| subject.name == name).expect("a subject")
}

#[test]
fn a_scenario_of_the_testbed_runs_in_virtual_time() {
    let scenario = shortened("mhip-10", 6);
    let limit = 9.3e6 * 1448.0 / 1514.0;
    for (name, links) in [("tcp a", 1.0), ("mpip", 2.0)] {
        let outcome = run(&scenario, &subject(&scenario, name), 0).expect("it runs");
        assert_eq!(outcome.violations, Vec::<String>::new());
        let share = outcome.flows[0].goodput_bps / limit / links;
        assert!((0.3..1.001).contains(&share), "{name}: {share}");
        assert_eq!(outcome.flows[0].intervals_bps.len(), 60);
        let carried: u64 = outcome.record.directions[0].delivered.iter().sum();
        assert_eq!(carried, outcome.record.directions[0].counters.delivered_bytes);
        let again = run(&scenario, &subject(&scenario, name), 0).expect("it runs");
        assert_eq!(again.flows[0].goodput_bps, outcome.flows[0].goodput_bps, "{name}");
    }
}

#[test]
fn quic_is_quinns_in_virtual_time_too() {
    let sender = |name: &str| name.parse::<crate::sender::Sender>().expect("known");
    let loaded = scenarios::find("quic-1").expect("a scenario");
    let quinn = sender("quinn-bbr").replace(loaded.clone()).scenario;
    let (world, numbers) = world(&quinn, &subject(&quinn, "mpip"), 0).expect("it has all");
    assert_eq!(world.flows[numbers[0]].from, 1, "a download");
    assert!(matches!(
        world.flows[numbers[0]].traffic,
        spec::Traffic::Quic { bytes: None, control: spec::QuicControl::Bbr }
    ));
    let go = sender("quic-go").replace(loaded).scenario;
    let error = super::world(&go, &subject(&go, "mpip"), 0).expect_err("another implementation");
    assert!(error.contains("kernels only"), "{error}");
}

#[test]
fn a_switch_a_schedule_and_steady_flows_are_taken_over() {
    let scenario = scenarios::find("cut-announced-a").expect("a scenario").scenario;
    let (world, numbers) = world(&scenario, &subject(&scenario, "mpip"), 0).expect("it has all");
    assert_eq!((world.links.len(), world.routes.len(), numbers), (4, 4, vec![0]));
    // Both directions go down, and both interfaces lose their address.
    assert_eq!(world.script.len(), 4);
    assert!(world.script.iter().all(|(at, _)| *at == WARM_UP + 8 * SECOND));
    let switched = scenarios::find("mpip-pair-limit").expect("a scenario").scenario;
    let (world, _) = super::world(&switched, &subject(&switched, "mpip"), 0).expect("it has all");
    assert_eq!(world.routes.len(), 8);
    assert!(world.routes.values().any(|links| links.len() == 3), "the limit of a pair");
    let ping = scenarios::find("ping-beside-bulk").expect("a scenario").scenario;
    let (world, numbers) = super::world(&ping, &subject(&ping, "mpip"), 0).expect("it has all");
    assert_eq!((world.flows.len(), numbers), (3, vec![0, 1, 2]));
}

/// [F-3]
#[test]
fn what_the_clocks_gain_is_not_taken_for_a_queue() {
    let scenario = shortened("clock-drift-day", 900);
    let means = |system: &str| -> Vec<[f64; 2]> {
        let outcome = run(&scenario, &subject(&scenario, system), 0).expect("it runs");
        assert_eq!(outcome.estimates.len(), 2);
        let mean =
            |values: &[Option<f64>]| values.iter().flatten().sum::<f64>() / values.len() as f64;
        let gained = if system == "mpip drift" { 3.75 } else { 0.0 };
        assert!((outcome.estimates[0].clock_gained_ms - gained).abs() < 0.01);
        outcome.estimates.iter().map(|e| [mean(&e.queuing_ms), mean(&e.relative_ms)]).collect()
    };
    let (steady, drifting) = (means("mpip"), means("mpip drift"));
    for (steady, drifting) in steady.concat().into_iter().zip(drifting.concat()) {
        assert!((steady - drifting).abs() < 0.3, "{steady} ms became {drifting} ms");
    }
}

#[test]
fn what_only_kernels_have_is_refused_by_name() {
    for (name, reason) in [
        ("nat", "routers"),
        ("fairness-1", "plain traffic"),
        ("requests", "request-response"),
        ("voip-rule", "\"rules\" beside voice"),
    ] {
        let scenario = scenarios::find(name).expect("a scenario").scenario;
        let all = subjects(&scenario).into_iter().filter(has);
        let refused: Vec<String> = all.filter_map(|s| world(&scenario, &s, 0).err()).collect();
        assert!(refused.iter().any(|text| text.contains(reason)), "{name}: {refused:?}");
    }
}

#[test]
fn rules_are_those_of_the_daemon() {
    let table: toml::Table = "rules = [{ protocol = 'tcp', length = '0-200', priority = \
         'response' }, { remote_port = 53, priority = 'redundant', copies = 3, ordered = true, \
         paths = { avoid = ['a', 'b'] } }]"
        .parse()
        .expect("valid");
    let found = rules(&table["rules"]).expect("valid");
    assert_eq!((found[0].protocol, found[0].length.clone()), (Some(6), Some(0..=200)));
    assert_eq!(found[1].copies, mpip_core::Copies::Fixed(3));
    assert_eq!(found[1].ordered, Some(true));
    assert_eq!(found[1].paths.as_ref().expect("paths").interfaces, ["a", "b"]);
    let wrong: toml::Table = "rules = [{ priority = 'fast' }]".parse().expect("valid");
    let reason = rules(&wrong["rules"]).expect_err("no priority");
    assert!(reason.starts_with("rule: priority: expected one of"), "{reason}");
    assert!(rules(&toml::Value::Boolean(true)).is_err());
}
