use super::*;

const RTT: Nanos = 20 * MILLI;
/// Segments per second.
const RATE: f64 = 1_000.0;
const MSS: usize = 1_448;

/// Segments arrive one by one. They are acknowledged `bundle` at a time, after a round trip of
/// `rtt`.
fn run(bbr: &mut Bbr, (from, to): (Nanos, Nanos), bundle: u64, rtt: Nanos) {
    let apart = bundle * MILLI;
    for now in (from..to).step_by(apart as usize) {
        let delivered = now as f64 / SECOND as f64 * RATE;
        let in_flight = bbr.segments.min(RATE * rtt as f64 / SECOND as f64);
        bbr.on_ack(&Sample {
            now,
            mss: MSS,
            acked: bundle as f64,
            lost: 0.0,
            delivered,
            prior_delivered: delivered - RATE * rtt as f64 / SECOND as f64,
            interval: rtt,
            app_limited: false,
            rtt: Some(rtt),
            prior_in_flight: in_flight,
            in_flight,
            paced_for: 0,
            in_recovery: false,
        });
    }
}

#[test]
fn the_window_is_twice_the_bdp_and_the_aggregated_acknowledgements() {
    for (bundle, window) in [(1, 40.0..=50.0), (20, 58.0..=70.0)] {
        let mut bbr = Bbr::new();
        bbr.on_open(SECOND, Some(RTT), MSS);
        run(&mut bbr, (SECOND, 6 * SECOND), bundle, RTT);
        assert_eq!(bbr.mode, Mode::ProbeBw);
        assert!(window.contains(&bbr.segments), "{bundle}: {}", bbr.segments);
    }
}

#[test]
fn a_longer_minimum_rtt_is_accepted_after_ten_seconds() {
    let mut bbr = Bbr::new();
    bbr.on_open(SECOND, Some(RTT), MSS);
    run(&mut bbr, (SECOND, 4 * SECOND), 1, RTT);
    run(&mut bbr, (4 * SECOND, 13 * SECOND), 1, 5 * RTT);
    assert_eq!(bbr.min_rtt, Some(RTT));
    run(&mut bbr, (13 * SECOND, 15 * SECOND), 1, 5 * RTT);
    assert_eq!(bbr.min_rtt, Some(5 * RTT));
}

fn lossy() -> (Bbr, Sample) {
    let mut bbr = Bbr::new();
    bbr.on_open(SECOND, Some(RTT), MSS);
    run(&mut bbr, (SECOND, 6 * SECOND), 1, RTT);
    let sample = Sample {
        now: 6 * SECOND,
        mss: MSS,
        acked: 1.0,
        lost: 3.0,
        delivered: 6.0 * RATE,
        prior_delivered: 6.0 * RATE - 20.0,
        interval: RTT,
        app_limited: false,
        rtt: Some(RTT),
        prior_in_flight: 20.0,
        in_flight: 16.0,
        paced_for: 0,
        in_recovery: true,
    };
    (bbr, sample)
}

#[test]
fn recovery_conserves_packets_for_a_round_and_its_end_restores_the_window() {
    let (mut bbr, sample) = lossy();
    let before = bbr.segments;
    bbr.on_loss();
    bbr.on_ack(&sample);
    assert_eq!(bbr.segments, 17.0);
    bbr.on_ack(&Sample { lost: 0.0, in_recovery: false, ..sample });
    assert!(bbr.segments >= before - 3.0, "{} and {before}", bbr.segments);
}

#[test]
fn a_timeout_leaves_one_segment_until_acknowledgements_come() {
    let (mut bbr, sample) = lossy();
    let before = bbr.segments;
    bbr.on_timeout();
    assert_eq!(bbr.bytes(MSS), MSS as u64);
    bbr.on_ack(&Sample { lost: 0.0, acked: 4.0, ..sample });
    assert_eq!(bbr.segments, 5.0);
    bbr.on_ack(&Sample { lost: 0.0, in_recovery: false, ..sample });
    assert!(bbr.segments >= before - 3.0, "{} and {before}", bbr.segments);
}

#[test]
fn a_loss_in_probe_rtt_does_not_forget_the_window() {
    let mut bbr = Bbr::new();
    bbr.on_open(SECOND, Some(RTT), MSS);
    run(&mut bbr, (SECOND, 4 * SECOND), 1, RTT);
    let before = bbr.segments;
    // Round trips are longer from now on. ProbeRTT comes after ten seconds.
    let mut now = 4 * SECOND;
    while !bbr.probes_rtt() {
        run(&mut bbr, (now, now + 10 * MILLI), 1, RTT + MILLI);
        now += 10 * MILLI;
    }
    assert_eq!(bbr.segments, MIN_SEGMENTS);
    bbr.on_loss();
    assert!(bbr.prior_segments >= before - 3.0, "{} and {before}", bbr.prior_segments);
    assert!((14 * SECOND..15 * SECOND).contains(&now), "{now}");
}

#[test]
fn a_tso_packet_is_two_segments_one_on_a_slow_path_and_a_millisecond_on_a_fast_one() {
    let mut bbr = Bbr::new();
    bbr.on_open(0, Some(RTT), MSS);
    for (segments_per_second, bundle) in [(80.0, 1), (800.0, 2), (8_200.0, 8), (1e9, 127)] {
        bbr.pacing = segments_per_second;
        assert_eq!(bbr.tso_segments(), bundle);
    }
}

#[test]
fn pacing_starts_from_the_handshake_or_else_the_first_sample() {
    let paced_for = |rtt, first: Option<Nanos>| {
        let mut bbr = Bbr::new();
        bbr.on_open(0, rtt, MSS);
        if first.is_some() {
            bbr.on_ack(&Sample { rtt: first, interval: 0, ..lossy().1 });
        }
        bbr.pacing
    };
    let expected = 2.885 * 10.0 / 0.02 * 0.99;
    assert!((paced_for(Some(RTT), None) - expected).abs() < 1.0);
    assert!(paced_for(None, None) > 19.0 * expected);
    assert!((paced_for(None, Some(RTT)) - expected).abs() < 1.0);
}
