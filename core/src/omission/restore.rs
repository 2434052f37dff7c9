use super::*;

/// The unread part of a compact packet.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn slice(&mut self, len: usize) -> Result<&'a [u8], RestoreError> {
        let needed = self.at + len;
        let taken = self.bytes.get(self.at..needed);
        self.at = needed;
        taken.ok_or(RestoreError::Truncated { needed, found: self.bytes.len() })
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> Result<&'a [u8; N], RestoreError> {
        self.slice(N).map(|taken| taken.first_chunk().expect("as long as asked for"))
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, RestoreError> {
        self.take::<1>().map(|[byte]| *byte)
    }
}

impl SessionHeader {
    /// Writes the headers of the packet at `sequence` of the session to the start of `head`.
    /// `compact` is the rest of the frame: compact header and payload.
    ///
    /// With [`Checksum::Complete`] the packet is identical to the sender's. With
    /// [`Checksum::Partial`] the payload is not summed: the checksum field of TCP or UDP holds the
    /// pseudo-header sum, for the host to complete or to trust. [`Restored::checksum`] tells which
    /// one it is: a packet without a TCP or UDP checksum is complete.
    ///
    /// # Errors
    ///
    /// If `compact` is not the compact form of a packet; the content of `head` is then unspecified.
    #[inline]
    pub fn restore(
        &self,
        sequence: u32,
        compact: &[u8],
        checksum: Checksum,
        head: &mut [u8; HEAD_MAX],
    ) -> Result<Restored, RestoreError> {
        let mut cursor = Cursor { bytes: compact, at: 0 };
        let control = cursor.byte()?;
        head[..self.image.len()].copy_from_slice(&self.image);
        allow(control, self.allowed_control())?;
        self.restore_network(sequence, control, &mut cursor, head)?;
        let transport = &mut head[self.network_len..];
        let transport_len = match self.transport {
            Transport::Tcp => restore_tcp(control, &mut cursor, transport)?,
            Transport::Udp => UDP_HEADER,
            Transport::Opaque => 0,
        };
        let head_len = self.network_len + transport_len;
        let payload = &compact[cursor.at..];
        let found = head_len + payload.len();
        let longest = if self.is_v4() { 0xffff } else { IPV6_HEADER + 0xffff };
        if found > longest {
            return Err(RestoreError::Length { found });
        }
        self.complete_network(found, head);
        let transport = &mut head[self.network_len..head_len];
        let checksum = self.complete_transport(control, checksum, transport, payload);
        Ok(Restored { head_len, payload: cursor.at, checksum })
    }

    #[inline]
    fn allowed_control(&self) -> u8 {
        let identification = if self.is_v4() { control::IDENTIFICATION } else { 0 };
        let transport = match self.transport {
            Transport::Tcp => {
                control::TIMESTAMPS
                    | control::PUSH
                    | control::FLAGS
                    | control::URGENT
                    | control::OPTIONS
            }
            Transport::Udp => control::NO_CHECKSUM,
            Transport::Opaque => 0,
        };
        control::NETWORK | identification | transport
    }

    #[inline]
    fn restore_network(
        &self,
        sequence: u32,
        control: u8,
        cursor: &mut Cursor<'_>,
        head: &mut [u8; HEAD_MAX],
    ) -> Result<(), RestoreError> {
        if control & control::NETWORK != 0 {
            self.restore_unusual(cursor, head)?;
        }
        if self.is_v4() {
            let predicted = self.predicted(sequence);
            let identification = match control & control::IDENTIFICATION {
                0 => predicted,
                control::IDENTIFICATION_NEAR => predicted.wrapping_add(cursor.byte()?.into()),
                control::IDENTIFICATION_FULL => u16::from_be_bytes(*cursor.take()?),
                _ => 0,
            };
            put(head, at::V4_IDENTIFICATION, identification);
        }
        Ok(())
    }

    /// Reads the network byte and the fields that it announces.
    fn restore_unusual(
        &self,
        cursor: &mut Cursor<'_>,
        head: &mut [u8; HEAD_MAX],
    ) -> Result<(), RestoreError> {
        let bits = cursor.byte()?;
        let of_version = if self.is_v4() { network::FRAGMENT } else { network::FLOW };
        allow(bits, network::CLASS | network::HOPS | of_version)?;
        if bits & network::CLASS != 0 {
            let class = cursor.byte()?;
            if self.is_v4() {
                head[1] = class;
            } else {
                head[0] = 0x60 | class >> 4;
                head[1] = class << 4 | head[1] & 0x0f;
            }
        }
        if bits & network::HOPS != 0 {
            head[if self.is_v4() { 8 } else { 7 }] = cursor.byte()?;
        }
        if bits & network::FRAGMENT != 0 {
            let fragment = word(head, at::V4_FRAGMENT) ^ DONT_FRAGMENT;
            put(head, at::V4_FRAGMENT, fragment);
        }
        if bits & network::FLOW != 0 {
            let &[high, middle, low] = cursor.take()?;
            // A flow label has 20 bits.
            allow(high, 0x0f)?;
            head[1] = head[1] & 0xf0 | high;
            head[2..4].copy_from_slice(&[middle, low]);
        }
        Ok(())
    }

    /// Writes the length fields and the checksum of the IPv4 header.
    #[inline]
    fn complete_network(&self, total_len: usize, head: &mut [u8; HEAD_MAX]) {
        if self.is_v4() {
            put(head, at::V4_LEN, total_len as u16);
            let checksum = !fold(sum(&head[..IPV4_HEADER]));
            head[at::V4_CHECKSUM..][..2].copy_from_slice(&checksum.to_ne_bytes());
        } else {
            put(head, at::V6_LEN, (total_len - IPV6_HEADER) as u16);
        }
    }

    /// Writes the length and checksum of the transport header.
    #[inline]
    fn complete_transport(
        &self,
        control: u8,
        wanted: Checksum,
        transport: &mut [u8],
        payload: &[u8],
    ) -> Checksum {
        let len = transport.len() + payload.len();
        let field = match self.transport {
            Transport::Tcp => at::TCP_CHECKSUM,
            Transport::Udp => {
                put(transport, at::UDP_LEN, len as u16);
                transport[at::UDP_CHECKSUM..][..2].fill(0);
                if control & control::NO_CHECKSUM != 0 {
                    return Checksum::Complete;
                }
                at::UDP_CHECKSUM
            }
            Transport::Opaque => return Checksum::Complete,
        };
        let pseudo = self.pseudo_sum(len);
        let value = match wanted {
            Checksum::Partial => fold(pseudo),
            Checksum::Complete => {
                let value = !fold(pseudo + sum(transport) + sum(payload));
                // RFC 768: a sum of zero is sent as all ones.
                if value == 0 && self.transport == Transport::Udp { !0 } else { value }
            }
        };
        transport[field..][..2].copy_from_slice(&value.to_ne_bytes());
        wanted
    }
}

/// Writes the TCP header behind the ports, with a checksum of zero; returns its length.
#[inline]
fn restore_tcp(
    control: u8,
    cursor: &mut Cursor<'_>,
    tcp: &mut [u8],
) -> Result<usize, RestoreError> {
    tcp[at::TCP_SEQUENCE..][..8].copy_from_slice(cursor.take::<8>()?);
    tcp[at::TCP_WINDOW..][..2].copy_from_slice(cursor.take::<2>()?);
    let flags = if control & control::FLAGS != 0 {
        allow(control, !control::PUSH)?;
        let flags = *cursor.take::<2>()?;
        allow(flags[0], 0x0f)?;
        u16::from_be_bytes(flags)
    } else if control & control::PUSH != 0 {
        TCP_ACK | TCP_PUSH
    } else {
        TCP_ACK
    };
    tcp[at::TCP_CHECKSUM..][..4].fill(0);
    if control & control::URGENT != 0 {
        tcp[at::TCP_URGENT..][..2].copy_from_slice(cursor.take::<2>()?);
    }
    let mut len = TCP_HEADER;
    if control & control::TIMESTAMPS != 0 {
        tcp[len..][..4].copy_from_slice(&TIMESTAMPS);
        tcp[len + 4..][..8].copy_from_slice(cursor.take::<8>()?);
        len += TIMESTAMPS_OPTION;
    }
    if control & control::OPTIONS != 0 {
        let options = usize::from(cursor.byte()?) * 4;
        let found = len + options;
        if found > TCP_HEADER_MAX {
            return Err(RestoreError::Options { found });
        }
        tcp[len..found].copy_from_slice(cursor.slice(options)?);
        len = found;
    }
    put(tcp, at::TCP_FLAGS, (len as u16 / 4) << 12 | flags);
    Ok(len)
}

/// Refuses bits in `found` that are not in `allowed`.
#[inline]
fn allow(found: u8, allowed: u8) -> Result<(), RestoreError> {
    match found & !allowed {
        0 => Ok(()),
        _ => Err(RestoreError::Bits { found, allowed }),
    }
}
