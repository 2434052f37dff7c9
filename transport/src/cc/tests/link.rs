//! One bottleneck in virtual time, with senders that send packets and get feedback.
//!
//! ```text
//! sender --> [queue of `buffer` bytes, `rate`] --> loss --> delay +- jitter --> receiver
//!   ^------------------------------ delay <------------------------------------|
//! ```

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BinaryHeap;

use crate::cc::CongestionControlKind;
use crate::cc::{self, CongestionControl, CongestionEvent, RateSample, RttSum, Subflow};
use crate::parameters::BbrParameters;
use mpip_types::Instant;

pub(super) const PACKET: u64 = 1_448;

#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// Bytes per second.
    pub(super) rate: f64,
    /// Base round-trip time.
    pub(super) rtt: Duration,
    /// Bytes.
    pub(super) buffer: f64,
    /// Share of packets lost after the queue.
    pub(super) loss: f64,
    /// One-way delay varies by up to this in both directions, per packet, so that packets are
    /// reordered.
    pub(super) jitter: Duration,
    /// Feedback delay of the receiver after the first unreported packet.
    pub(super) feedback: Duration,
    /// Packets that leave in one burst.
    pub(super) burst: u64,
    /// Delay of the sender's pacing timer.
    pub(super) lateness: Duration,
}

impl Link {
    /// A clean link of `mbps` Mbit/s with a buffer of `buffer` bandwidth-delay products.
    pub(super) fn new(mbps: f64, rtt: Duration, buffer: f64) -> Self {
        let rate = mbps * 1e6 / 8.0;
        Self {
            rate,
            rtt,
            buffer: (buffer * rate * rtt.as_secs_f64()).max(4.0 * PACKET as f64),
            loss: 0.0,
            jitter: Duration::ZERO,
            feedback: Duration::from_millis(1).min(rtt),
            burst: 1,
            lateness: Duration::ZERO,
        }
    }

    /// Bytes.
    pub(super) fn bdp(&self) -> f64 {
        self.rate * self.rtt.as_secs_f64()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Wake(usize),
    Dequeue,
    Arrive(usize, usize),
    Report(usize),
    Feedback(usize, usize),
    Lost(usize, usize),
    SetRate(u64),
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    sent: Instant,
    arrived: Instant,
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    app_limited: bool,
}

#[derive(Debug)]
struct Flow {
    control: Box<dyn CongestionControl>,
    group: usize,
    /// Bytes per second that the application offers; infinite for bulk.
    offered: f64,
    /// Whether samples are marked as limited by the application.
    admits: bool,
    start: Instant,
    sent: u64,
    packets: Vec<Packet>,
    in_flight: u64,
    next_send: Instant,
    wake: Option<Instant>,
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    app_limited_until: u64,
    unreported: Vec<usize>,
    reports: Vec<(Instant, Vec<usize>)>,
    srtt: Option<Duration>,
    /// Mean deviation from it.
    deviation: Duration,
    min_rtt: (Duration, Instant),
    lost: u64,
}

/// What was measured since the last call of [`World::measure`].
#[derive(Debug)]
pub(super) struct Measured {
    /// Bytes per second that arrived, per flow.
    pub(super) rates: Vec<f64>,
    /// Mean bytes in the queue.
    pub(super) queue: f64,
    /// Packets lost, dropped by the queue or not, per packet sent.
    pub(super) loss: f64,
}

impl Measured {
    pub(super) fn total(&self) -> f64 {
        self.rates.iter().sum()
    }
}

/// Jain's index of fairness.
pub(super) fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    sum * sum / (rates.len() as f64 * squares)
}

#[derive(Debug)]
pub(super) struct World {
    associated: bool,
    link: Link,
    now: Instant,
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    sequence: u64,
    random: u64,
    flows: Vec<Flow>,
    queue: std::collections::VecDeque<(usize, usize)>,
    queued: f64,
    queue_area: f64,
    queue_at: Instant,
    mark: (Instant, Vec<u64>, u64, u64),
}

impl World {
    pub(super) fn new(link: Link, kinds: &[CongestionControlKind]) -> Self {
        let mut world = Self {
            associated: false,
            link,
            now: Instant::ZERO,
            events: BinaryHeap::new(),
            sequence: 0,
            random: 0x1234_5678_9abc_def1,
            flows: Vec::new(),
            queue: std::collections::VecDeque::new(),
            queued: 0.0,
            queue_area: 0.0,
            queue_at: Instant::ZERO,
            mark: (Instant::ZERO, Vec::new(), 0, 0),
        };
        for (index, kind) in kinds.iter().enumerate() {
            world.add(*kind, index, Instant::from_millis(index as u64 * 130));
        }
        world
    }

    /// Adds a flow; flows of one `group` are coupled.
    pub(super) fn add(&mut self, kind: CongestionControlKind, group: usize, start: Instant) {
        let index = self.flows.len();
        self.flows.push(Flow {
            control: cc::new(kind, start, PACKET, &BbrParameters::default()),
            group,
            offered: f64::INFINITY,
            admits: true,
            start,
            sent: 0,
            packets: Vec::new(),
            in_flight: 0,
            next_send: start,
            wake: Some(start),
            delivered: 0,
            delivered_at: start,
            first_sent: start,
            app_limited_until: 0,
            unreported: Vec::new(),
            reports: Vec::new(),
            srtt: None,
            deviation: Duration::ZERO,
            min_rtt: (Duration::MAX, start),
            lost: 0,
        });
        self.schedule(start, Event::Wake(index));
    }

    /// Limits what the application of `flow` offers, in bytes per second; `admits`: samples tell.
    pub(super) fn offer(&mut self, flow: usize, rate: f64, admits: bool) {
        let flow = &mut self.flows[flow];
        flow.offered = rate;
        flow.admits = admits;
        flow.start = self.now;
        flow.sent = 0;
    }

    pub(super) fn set_rate_at(&mut self, at: Instant, mbps: u64) {
        self.schedule(at, Event::SetRate(mbps));
    }

    /// The path jitters by `jitter` each way from now on.
    pub(super) fn set_jitter(&mut self, jitter: Duration) {
        self.link.jitter = jitter;
    }

    /// Packets that leave the queue from now on take this time.
    pub(super) fn set_rtt(&mut self, rtt: Duration) {
        self.link.rtt = rtt;
    }

    /// All flows are paths of one association, coupled or not.
    pub(super) fn associate(&mut self) {
        self.associated = true;
    }

    pub(super) fn state(&self, flow: usize) -> &'static str {
        self.flows[flow].control.state()
    }

    pub(super) fn window(&self, flow: usize) -> u64 {
        self.flows[flow].control.window()
    }

    pub(super) fn run_until(&mut self, end: Instant) {
        while let Some(Reverse((at, _, _))) = self.events.peek()
            && *at <= end
        {
            let Reverse((at, _, event)) = self.events.pop().unwrap();
            self.now = at;
            self.handle(event);
        }
        self.now = end;
    }

    pub(super) fn measure(&mut self) -> Measured {
        self.account_queue();
        let (at, delivered, sent, lost) = core::mem::take(&mut self.mark);
        let seconds = self.now.since(at).as_secs_f64();
        let now: Vec<u64> = self.flows.iter().map(|flow| flow.delivered).collect();
        let total_sent = self.flows.iter().map(|flow| flow.packets.len() as u64).sum();
        let total_lost = self.flows.iter().map(|flow| flow.lost).sum();
        let measured = Measured {
            rates: now
                .iter()
                .enumerate()
                .map(|(i, d)| (d - delivered.get(i).unwrap_or(&0)) as f64 / seconds)
                .collect(),
            queue: self.queue_area / seconds,
            loss: (total_lost - lost) as f64 / ((total_sent - sent) as f64).max(1.0),
        };
        self.queue_area = 0.0;
        self.mark = (self.now, now, total_sent, total_lost);
        measured
    }

    /// Runs for `warm_up`, then measures for `time`.
    pub(super) fn measure_after(&mut self, warm_up: Duration, time: Duration) -> Measured {
        self.run_until(self.now + warm_up);
        self.measure();
        self.run_until(self.now + time);
        self.measure()
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    /// Uniform in [0, 1): splitmix64.
    fn uniform(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn account_queue(&mut self) {
        self.queue_area += self.queued * self.now.since(self.queue_at).as_secs_f64();
        self.queue_at = self.now;
    }

    fn transmission(&self) -> Duration {
        Duration::from_secs_f64(PACKET as f64 / self.link.rate)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Wake(flow) => {
                if self.flows[flow].wake == Some(self.now) {
                    self.flows[flow].wake = None;
                    self.send(flow);
                }
            }
            Event::Dequeue => self.dequeue(),
            Event::Arrive(flow, number) => {
                let now = self.now;
                let state = &mut self.flows[flow];
                state.packets[number].arrived = now;
                state.unreported.push(number);
                if state.unreported.len() == 1 {
                    self.schedule(now + self.link.feedback, Event::Report(flow));
                }
            }
            Event::Report(flow) => {
                let state = &mut self.flows[flow];
                let numbers = core::mem::take(&mut state.unreported);
                state.reports.push((self.now, numbers));
                let index = state.reports.len() - 1;
                self.schedule(self.now + self.link.rtt / 2, Event::Feedback(flow, index));
            }
            Event::Feedback(flow, index) => {
                let (reported, numbers) = {
                    let (at, numbers) = &mut self.flows[flow].reports[index];
                    (*at, core::mem::take(numbers))
                };
                self.acknowledge(flow, reported, &numbers);
                self.send(flow);
            }
            Event::Lost(flow, number) => {
                self.lose(flow, number);
                self.send(flow);
            }
            Event::SetRate(mbps) => self.link.rate = mbps as f64 * 1e6 / 8.0,
        }
    }

    fn dequeue(&mut self) {
        self.account_queue();
        let (flow, number) = self.queue.pop_front().unwrap();
        self.queued -= PACKET as f64;
        let jitter = self.link.jitter.as_secs_f64() * (2.0 * self.uniform() - 1.0);
        let delay = (self.link.rtt.as_secs_f64() / 2.0 + jitter).max(0.0);
        if self.uniform() < self.link.loss {
            self.drop_packet(flow, number);
        } else {
            let at = self.now + Duration::from_secs_f64(delay);
            self.schedule(at, Event::Arrive(flow, number));
        }
        if !self.queue.is_empty() {
            self.schedule(self.now + self.transmission(), Event::Dequeue);
        }
    }

    /// The sender detects the loss a quarter of an RTT after the latest time of feedback, as RACK
    /// would.
    fn drop_packet(&mut self, flow: usize, number: usize) {
        self.flows[flow].lost += 1;
        let noticed = self.now + self.link.rtt * 5 / 4 + self.link.jitter + self.link.feedback;
        self.schedule(noticed, Event::Lost(flow, number));
    }

    fn send(&mut self, index: usize) {
        loop {
            let flow = &mut self.flows[index];
            if self.now < flow.next_send {
                let at = flow.next_send + self.link.lateness;
                self.wake_at(index, at);
                return;
            }
            let room = flow.control.window().saturating_sub(flow.in_flight) / PACKET;
            let offered = flow.offered * self.now.since(flow.start).as_secs_f64();
            let supply = if flow.offered.is_finite() {
                ((offered as u64).saturating_sub(flow.sent)) / PACKET
            } else {
                u64::MAX
            };
            let count = self.link.burst.min(room).min(supply);
            if count == 0 {
                if supply == 0 && room > 0 {
                    if flow.admits {
                        flow.app_limited_until = flow.delivered + flow.in_flight.max(1);
                    }
                    let wait = Duration::from_secs_f64(PACKET as f64 / flow.offered);
                    let at = self.now + wait;
                    self.wake_at(index, at);
                }
                return;
            }
            for _ in 0..count {
                self.send_packet(index);
            }
            let flow = &mut self.flows[index];
            if let Some(rate) = flow.control.pacing_rate() {
                let gap = Duration::from_secs_f64((count * PACKET) as f64 / rate as f64);
                flow.next_send = self.now + gap;
            }
        }
    }

    fn wake_at(&mut self, index: usize, at: Instant) {
        let wake = &mut self.flows[index].wake;
        if wake.is_none_or(|wake| at < wake) {
            *wake = Some(at);
            self.schedule(at, Event::Wake(index));
        }
    }

    fn send_packet(&mut self, index: usize) {
        self.account_queue();
        let now = self.now;
        let flow = &mut self.flows[index];
        flow.control.on_sent(now, PACKET, flow.in_flight);
        if flow.in_flight == 0 {
            flow.first_sent = now;
            flow.delivered_at = now;
        }
        flow.in_flight += PACKET;
        flow.sent += PACKET;
        let number = flow.packets.len();
        flow.packets.push(Packet {
            sent: now,
            arrived: now,
            delivered: flow.delivered,
            delivered_at: flow.delivered_at,
            first_sent: flow.first_sent,
            app_limited: flow.app_limited_until > flow.delivered,
        });
        if self.queued + PACKET as f64 > self.link.buffer {
            self.drop_packet(index, number);
            return;
        }
        self.queued += PACKET as f64;
        self.queue.push_back((index, number));
        if self.queue.len() == 1 {
            self.schedule(now + self.transmission(), Event::Dequeue);
        }
    }

    fn subflows(&self, index: usize) -> (Vec<Subflow>, usize) {
        let group = self.flows[index].group;
        let members: Vec<usize> =
            (0..self.flows.len()).filter(|&i| self.flows[i].group == group).collect();
        let own = members.iter().position(|&i| i == index).unwrap();
        let list = members
            .iter()
            .map(|&i| Subflow {
                window: self.flows[i].control.window(),
                rtt: self.flows[i].srtt.unwrap_or_default(),
                between_losses: self.flows[i].control.between_losses(),
                reduced: self.flows[i].control.reduced(),
                drains: self.flows[i].control.drains(),
                delivered: self.flows[i].control.delivered(),
            })
            .collect();
        (list, own)
    }

    fn acknowledge(&mut self, index: usize, reported: Instant, numbers: &[usize]) {
        let now = self.now;
        let (subflows, own) = self.subflows(index);
        let flow = &mut self.flows[index];
        let acked = numbers.len() as u64 * PACKET;
        let prior_in_flight = flow.in_flight;
        flow.in_flight -= acked;
        flow.delivered += acked;
        flow.delivered_at = now;
        let packet = flow.packets[*numbers.iter().max().unwrap()];
        let rtt = now.since(packet.sent).saturating_sub(reported.since(packet.arrived));
        let deviation = flow.srtt.unwrap_or(rtt).abs_diff(rtt);
        flow.deviation = (flow.deviation * 31 + deviation) / 32;
        flow.srtt = Some(flow.srtt.map_or(rtt, |srtt| srtt * 7 / 8 + rtt / 8));
        if rtt <= flow.min_rtt.0 || now.since(flow.min_rtt.1) > Duration::from_secs(10) {
            flow.min_rtt = (rtt, now);
        }
        flow.first_sent = flow.first_sent.max(packet.sent);
        let (left_in, arrived_in) =
            (packet.sent.since(packet.first_sent), now.since(packet.delivered_at));
        let interval = left_in.max(arrived_in);
        let continues = packet.first_sent != packet.delivered_at;
        let rate = (flow.delivered - packet.delivered) as f64 / interval.as_secs_f64();
        let sample = RateSample {
            now,
            acked,
            lost: 0,
            lost_ranges: 0,
            prior_in_flight,
            in_flight: flow.in_flight,
            delivery_rate: (interval >= flow.min_rtt.0).then_some(rate as u64),
            app_limited: packet.app_limited,
            left_and_arrived_in: continues.then_some((left_in, arrived_in)),
            delivered: flow.delivered,
            prior_delivered: packet.delivered,
            rtt: Some(rtt),
            // Its samples are single packets also on a path that reorders.
            round_trips: RttSum::default(),
            smoothed_rtt: flow.srtt.unwrap_or(rtt),
            rtt_deviation: self.link.jitter / 2,
            jitter: if self.link.jitter.is_zero() { Duration::ZERO } else { flow.deviation },
            min_rtt: flow.min_rtt.0,
            ecn_ce: 0,
            capacity: None,
        };
        flow.control.on_feedback(&sample, &subflows, own);
        if self.associated && self.flows[index].control.asks_all_to_drain() {
            self.flows.iter_mut().for_each(|flow| flow.control.drain(now));
        }
    }

    fn lose(&mut self, index: usize, number: usize) {
        let now = self.now;
        let (subflows, own) = self.subflows(index);
        let flow = &mut self.flows[index];
        let prior_in_flight = flow.in_flight;
        flow.in_flight -= PACKET;
        let sample = RateSample {
            now,
            acked: 0,
            lost: PACKET,
            lost_ranges: 1,
            prior_in_flight,
            in_flight: flow.in_flight,
            delivery_rate: None,
            app_limited: false,
            left_and_arrived_in: None,
            delivered: flow.delivered,
            prior_delivered: 0,
            rtt: None,
            round_trips: RttSum::default(),
            smoothed_rtt: flow.srtt.unwrap_or(self.link.rtt),
            rtt_deviation: self.link.jitter / 2,
            jitter: if self.link.jitter.is_zero() { Duration::ZERO } else { flow.deviation },
            min_rtt: flow.min_rtt.0,
            ecn_ce: 0,
            capacity: None,
        };
        flow.control.on_feedback(&sample, &subflows, own);
        let event = CongestionEvent {
            now,
            sent: flow.packets[number].sent,
            lost: PACKET,
            persistent: false,
            ecn: false,
        };
        flow.control.on_congestion(&event, &subflows, own);
    }
}
