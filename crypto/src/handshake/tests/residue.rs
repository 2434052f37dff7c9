//! What a handshake leaves in the memory of its process.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

use super::*;

/// What is noted is masked, so that it is not found itself.
const MASK: u8 = 0xa5;

/// The part of a secret that is looked for.
const PART: usize = 16;

thread_local! {
    static NOTED: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Takes note of a secret that a primitive was given or made.
pub(in super::super) fn note(secret: &[u8]) {
    NOTED.with_borrow_mut(|noted| noted.push(secret.iter().map(|byte| byte ^ MASK).collect()));
}

/// Takes note of the key, if `data` is the first block of an inner HMAC (RFC 2104).
pub(in super::super) fn note_input(data: &[u8]) {
    if data.len() == 64 && data[32..] == [0x36; 32] {
        let key = data[..32].iter().map(|byte| byte ^ 0x36 ^ MASK).collect();
        NOTED.with_borrow_mut(|noted| noted.push(key));
    }
}

/// Where parts of the noted secrets are in memory that can be written, plain or as the blocks of
/// HMAC have them: the number of the secret, and the address.
fn found() -> Vec<(usize, usize)> {
    let mut sought: BTreeMap<u64, Vec<(usize, Vec<u8>)>> = BTreeMap::new();
    NOTED.with_borrow(|noted| {
        for (number, masked) in noted.iter().enumerate() {
            for pad in [0, 0x36, 0x5c] {
                for part in masked.chunks_exact(PART) {
                    let part: Vec<u8> = part.iter().map(|byte| byte ^ pad).collect();
                    sought.entry(word(&part, 0)).or_default().push((number, part));
                }
            }
        }
    });
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let memory = std::fs::OpenOptions::new().read(true).open("/proc/self/mem").unwrap();
    let mut found = Vec::new();
    let mut buffer = vec![0; 1 << 20];
    let own = buffer.as_ptr() as usize;
    let own = own..own + buffer.len();
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let range = line.split(' ').next().and_then(|range| range.split_once('-')).unwrap();
        let [mut from, to] = [range.0, range.1].map(|end| usize::from_str_radix(end, 16).unwrap());
        while from < to {
            let len = buffer.len().min(to - from);
            let Ok(len) = memory.read_at(&mut buffer[..len], from as u64) else { break };
            for at in 0..len.saturating_sub(PART - 1) {
                if buffer[at] == 0 && word(&buffer, at) == 0 {
                    continue;
                }
                // What is in memory is masked before it is compared, and never the other way round.
                let masked = word(&buffer, at) ^ u64::from_ne_bytes([MASK; 8]);
                let Some(parts) = sought.get(&masked).filter(|_| !own.contains(&(from + at)))
                else {
                    continue;
                };
                let here = buffer[at..at + PART].iter().map(|byte| byte ^ MASK);
                let numbers =
                    parts.iter().filter(|(_, part)| here.clone().eq(part.iter().copied()));
                found.extend(numbers.map(|(number, _)| (*number, from + at)));
            }
            from += len.saturating_sub(PART - 1).max(1);
        }
    }
    // It holds copies of secrets in use, which the next search would find if they outlived these.
    buffer.fill(0);
    core::hint::black_box(&buffer);
    found
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Calls `work` so far below the caller's frame that what follows does not overwrite its stack.
#[inline(never)]
fn far_below<T>(work: impl FnOnce() -> T) -> T {
    let pad = [0_u8; 64 * 1_024];
    core::hint::black_box(&pad);
    work()
}

/// The secrets that are left on this thread's stack, with their distance from this frame in bytes
/// (negative: below it), and how many are elsewhere.
fn left() -> (Vec<(usize, isize)>, usize) {
    let here = 0_u8;
    let here = &raw const here as usize;
    let (stack, rest): (Vec<_>, Vec<_>) =
        found().into_iter().partition(|(_, at)| (here - (256 << 10)..here + 4_096).contains(at));
    let distance = |at: usize| at.wrapping_sub(here).cast_signed();
    (stack.into_iter().map(|(number, at)| (number, distance(at))).collect(), rest.len())
}

#[test]
fn a_handshake_leaves_no_secret_in_memory() {
    let mut rng = Rng::new([0xd7; 32]);
    let mut key = || far_below(|| PrivateKey::generate(&mut rng));
    let (a, b) = (key(), key());
    let psk = far_below(|| PresharedKey::generate(&mut rng));
    note(psk.secret_bytes());
    let (mut initiator, initiation) =
        far_below(|| Initiator::start(&mut rng, &a, b.public_key(), &psk, &OFFER, 1).unwrap());
    let (stack, elsewhere) = left();
    assert_eq!(stack, [], "of making an initiation");
    assert!(elsewhere > 4, "what is in use is found: {elsewhere}");

    let responder = far_below(|| Responder::read(&mut rng, &b, &initiation).unwrap());
    assert_eq!(left().0, [], "of reading an initiation");
    let (secrets, response) = far_below(|| responder.respond(&psk, &ANSWER, 2).unwrap());
    assert_eq!(left().0, [], "of answering");
    let mut forged = response;
    forged[30] ^= 1;
    Mac1Key::of(a.public_key()).stamp(&mut forged);
    let refused = far_below(|| initiator.finish(&forged).unwrap_err());
    assert_eq!(refused, HandshakeError::Authentication);
    assert_eq!(left().0, [], "of refusing an answer");
    let completed = far_below(|| initiator.finish(&response).unwrap());
    assert_eq!(left().0, [], "of reading an answer");
    let keys = far_below(|| {
        [secrets, completed.secrets].map(|secrets| secrets.into_keys(Aead::Aes256Gcm))
    });
    assert_eq!(left().0, [], "of making keys");

    // Those that come to nothing.
    drop(Initiator::start(&mut rng, &a, b.public_key(), &psk, &OFFER, 3).unwrap());
    drop(Responder::read(&mut rng, &b, &initiation).unwrap());
    let noted = NOTED.with_borrow(Vec::len);
    assert!(noted > 40, "{noted}");
    drop((initiator, keys, a, b, psk, rng));
    assert_eq!(left(), (vec![], 0), "of {noted} secrets");
}
