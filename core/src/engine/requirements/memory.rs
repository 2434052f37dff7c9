//! Memory per session, path and association: the figures of `docs/architecture.md`.

use mpip_crypto::ReplayWindow;
use mpip_wire::{AckRange, SessionFields};

use crate::association::Association;
use crate::association::inspect::table_entries;
use crate::content::{Content, Path};
use crate::omission::SessionHeader;
use crate::parts::sending::Queued;
use crate::queue::SendQueue;
use crate::resequencer::Resequencer;
use crate::window::{DuplicateWindow, WIDE_WINDOW};

#[test]
fn a_session_takes_no_more_memory_than_documented() {
    let [sending, receiving] = table_entries().map(|(slot, index)| slot + index);
    let (queues, item) = SendQueue::<Queued>::BYTES;
    let header = size_of::<SessionHeader>();
    let sending = sending + queues + header + size_of::<SessionFields>();
    assert!(sending <= 1_068, "{sending}");
    let ordered = receiving + header + size_of::<Resequencer>();
    assert!(ordered <= 600, "{ordered}");
    let unordered = receiving + header + size_of::<DuplicateWindow>();
    assert!(unordered <= 880, "{unordered}");
    const { assert!(WIDE_WINDOW / 8 == 8_192) };
    assert!(item <= 104, "{item} for an item that waits");
}

#[test]
fn an_association_and_a_path_take_no_more_memory_than_documented() {
    assert!(size_of::<Association>() <= 3_896, "{}", size_of::<Association>());
    let replay = 2_080 - size_of::<ReplayWindow>();
    let ranges = 257 * size_of::<AckRange>();
    let path = size_of::<Path>() + replay + ranges;
    assert!(path <= 8_528, "{path}");
    const { assert!(mpip_transport::bytes_per_datagram::<Content>() <= 168) };
}
