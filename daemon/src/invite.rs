//! The thread that keeps the peers that joined: it makes invitations, judges requests to join, and
//! writes both down. Packets wait neither for its cryptography nor for its disk.
//!
//! A peer is written down first, then added to the engine, and only then told that it may come.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

use mpip_api::InvitationStatus;
use mpip_core::{Bucket, Instant, PathAddress, Rate};
use mpip_crypto::{Mac1Key, Note, ReceivedJoin, Rng, Verdict};
use mpip_net::clock;
use zeroize::Zeroize;

use crate::config::{GatewaySettings, Settings};
use crate::control::{Ask, Asker, ENDING, PeerChange};
use crate::joined::{Job, Joining, Record, Records, Terms, Wish};

/// Jobs that wait; further requests to join are dropped, and repeated by who sent them.
const JOBS: usize = 16;
/// Rate limit of requests to join: each costs a hash at most, before it proved anything.
const REQUESTS: Rate = Rate { burst: 32, per_second: 64 };

/// What the packets' thread has of it.
#[derive(Debug)]
pub(crate) struct Door {
    mac1_key: Mac1Key,
    jobs: SyncSender<Job>,
    requests: Bucket,
}

impl Door {
    /// Takes a datagram that may be a request to join. Returns whether it is one, and what to
    /// answer at once.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        from: PathAddress,
        datagram: &[u8],
    ) -> (bool, Option<Vec<u8>>) {
        if !ReceivedJoin::is_one(datagram) {
            return (false, None);
        }
        if !self.requests.take(now, REQUESTS) {
            return (true, None);
        }
        let answer = match ReceivedJoin::new(datagram, &self.mac1_key) {
            Ok(request) => {
                let sent = self.jobs.try_send(Job::Join { from, request });
                if let Err(TrySendError::Disconnected(_)) = sent {
                    log::error!("the thread of peers that join has ended");
                }
                None
            }
            Err(answer) => answer.map(|answer| answer.to_vec()),
        };
        (true, answer)
    }
}

/// The door and the jobs of a gateway with `settings`, whose thread [`serve`] starts.
pub(crate) fn open(settings: &Settings) -> Option<(Door, Receiver<Job>, SyncSender<Job>)> {
    settings.gateway.as_ref()?;
    let (jobs, waiting) = sync_channel(JOBS);
    let mac1_key = Mac1Key::of(settings.private_key.public_key());
    let door = Door { mac1_key, jobs: jobs.clone(), requests: Bucket::new() };
    Some((door, waiting, jobs))
}

/// Starts the thread. It ends with the process.
pub(crate) fn serve(
    settings: GatewaySettings,
    jobs: Receiver<Job>,
    asker: Asker,
) -> io::Result<()> {
    let records = Records::open(settings.peers_file.clone()).map_err(io::Error::other)?;
    let mut seed = clock::random_seed()?;
    let rng = Rng::new(seed);
    seed.zeroize();
    let mut keeper = Keeper { terms: settings.terms, records, asker, rng };
    thread::Builder::new().name("joining".to_owned()).spawn(move || {
        for job in jobs {
            keeper.work(job);
        }
    })?;
    Ok(())
}

struct Keeper {
    terms: Terms,
    records: Records,
    asker: Asker,
    rng: Rng,
}

impl Keeper {
    fn work(&mut self, job: Job) {
        let unix = clock::unix_time().as_secs();
        match job {
            Job::Invite { wish, reply } => drop(reply.try_send(self.invite(unix, wish))),
            Job::Remove { name, reply } => drop(reply.try_send(self.remove(&name))),
            Job::List { reply } => drop(reply.try_send(self.records.list(unix))),
            Job::Follow { terms } => self.terms = *terms,
            Job::Join { from, request } => self.join(unix, from, &request),
        }
    }

    fn invite(&mut self, unix: u64, mut wish: Wish) -> Result<InvitationStatus, String> {
        if wish.endpoints.is_empty() {
            wish.endpoints.clone_from(&self.terms.endpoints);
        }
        if wish.endpoints.is_empty() {
            wish.endpoints = self.own_endpoints()?;
        }
        let around = &self.terms.around;
        let invitation = self.records.invite(unix, &wish, around, &mut self.rng)?;
        log::info!("`{}` is invited for {} s", wish.name, wish.valid_s);
        Ok(InvitationStatus {
            name: wish.name,
            token: invitation.token().to_string(),
            addresses: invitation.addresses.iter().map(|(address, _)| *address).collect(),
            endpoints: invitation.endpoints,
            expires_unix_s: invitation.expires.into(),
        })
    }

    /// Where paths of this node start.
    fn own_endpoints(&self) -> Result<Vec<SocketAddr>, String> {
        let status = self.asker.answer(|reply| Ask::Status { sessions: false, reply });
        let status = status.ok_or(ENDING)?;
        let endpoints: Vec<SocketAddr> = status.endpoints().collect();
        if endpoints.is_empty() {
            return Err("no interface of this host has an address that paths can use: name where \
                        it can be reached with --endpoint ADDRESS:PORT"
                .to_owned());
        }
        Ok(endpoints)
    }

    fn remove(&mut self, name: &str) -> Result<(), String> {
        let asker = self.asker.clone();
        let _alone = asker.alone();
        if self.records.remove(name, &self.terms.around)? {
            self.change(PeerChange::Remove(name.to_owned()));
        }
        log::info!("`{name}` is removed");
        Ok(())
    }

    fn join(&mut self, unix: u64, from: PathAddress, request: &ReceivedJoin) {
        // What is written down and what is in force change together.
        let asker = self.asker.clone();
        let _alone = asker.alone();
        let judged = self.records.join(unix, request, &self.terms.around);
        let datagram = match judged {
            Joining::Unknown => request.note(Note::Unknown).to_vec(),
            Joining::Answer(secret, verdict, record) => {
                match &record {
                    Some(record) => self.add(record),
                    None if verdict == Verdict::Accepted => {}
                    None => log::warn!("{} may not join: {verdict:?}", from.remote),
                }
                request.answer(&mut self.rng, &secret, verdict).to_vec()
            }
        };
        self.asker.ask(Ask::Send { to: from, datagram });
    }

    fn add(&self, record: &Record) {
        if let Some(peer) = record.peer(&self.terms.reaches) {
            log::info!("`{}` has joined with key {}", peer.name, peer.public_key);
            self.change(PeerChange::Add(Box::new(peer)));
        }
    }

    /// Changes the engine's peers, and waits until they are.
    fn change(&self, change: PeerChange) {
        self.asker.answer(|done| Ask::Peer { change, done });
    }
}
