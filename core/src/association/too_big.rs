//! Inner packets that exceed the MTU of some or all paths, and the ICMP messages to their senders.

use super::Association;
use crate::content::Path;
use crate::drops::DropReason;
use crate::shared::Context;
use mpip_types::packet::{HEAD_ROOM, Header, MIN_MTU_V6, Segments, Version, too_big};
use mpip_types::{Instant, Rate};

use crate::parts::sizes::INNER_OVERHEAD;

/// Rate limit of "packet too big" messages (RFC 1812, section 4.3.2.8). A sender that missed one
/// soon triggers the next.
const MESSAGES: Rate = Rate { burst: 32, per_second: 100 };

impl Association {
    /// Refuses a packet that no path carries, and notifies the sender. The sender of a packet that
    /// only some paths carry is notified too, so that its next packets fit all paths.
    pub(super) fn check_length(
        &mut self,
        now: Instant,
        header: &Header,
        segments: &Segments,
        cx: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        let len = segments.segment_len(0);
        if len <= self.advised(header) {
            return Ok(());
        }
        let largest = self.largest_inner();
        self.tell_too_big(now, header, segments, cx);
        match largest {
            Some(largest) if len > largest => Err(cx.shared.refuse(DropReason::TooBig)),
            _ => Ok(()),
        }
    }

    /// Tells the sender of `segments` which packet length fits.
    pub(super) fn tell_too_big(
        &mut self,
        now: Instant,
        header: &Header,
        segments: &Segments,
        cx: &mut Context<'_>,
    ) {
        let Some(largest) = self.largest_inner() else { return };
        let mtu = usize::from(self.inner_mtu).min(largest) as u16;
        let mtu = if header.version == Version::V6 { mtu.max(MIN_MTU_V6) } else { mtu };
        if segments.segment_len(0) <= usize::from(mtu) || !self.messages.take(now, MESSAGES) {
            return;
        }
        // The message quotes the first segment of a super-packet.
        let mut head = [0; HEAD_ROOM];
        let (len, rest) = segments.write_head(0, &mut head);
        let mut quoted = head[..len].to_vec();
        let rest = rest.bytes();
        quoted.extend(&rest[..rest.len().min(usize::from(MIN_MTU_V6))]);
        let complete = quoted.len() >= header.header_len;
        if let Some(message) = complete.then(|| too_big(&quoted, header, mtu)).flatten() {
            let message = self.for_the_host(now, message, cx);
            cx.shared.host_messages.push(now, message);
        }
    }

    /// The longest packet that triggers no message.
    fn advised(&self, header: &Header) -> usize {
        usize::from(match header.version {
            _ if self.inner_mtu == 0 => u16::MAX,
            Version::V4 => self.inner_mtu,
            Version::V6 => self.inner_mtu.max(MIN_MTU_V6),
        })
    }

    /// The longest inner packet that an active path carries or is expected to carry; `None` without
    /// an active path.
    fn largest_inner(&self) -> Option<usize> {
        let active = self.paths.active();
        let most = active.map(Path::hoped_datagram).max()?;
        Some(most.saturating_sub(INNER_OVERHEAD))
    }
}
