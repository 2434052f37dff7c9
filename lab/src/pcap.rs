//! Packet traces in the pcapng format (draft-ietf-opsawg-pcapng), Ethernet, nanoseconds.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::time::Duration;

/// Writes one file with one interface.
pub(crate) struct PcapWriter {
    out: BufWriter<File>,
}

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const ETHERNET: u32 = 1;

impl PcapWriter {
    pub(crate) fn create(path: &str) -> io::Result<Self> {
        let file = File::create(path)
            .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
        let mut out = BufWriter::new(file);
        let mut section = Vec::new();
        section.extend(0x1a2b_3c4du32.to_le_bytes());
        section.extend([1, 0, 0, 0]);
        section.extend(u64::MAX.to_le_bytes());
        block(&mut out, SECTION_HEADER, &section)?;
        let mut interface = Vec::new();
        interface.extend(ETHERNET.to_le_bytes());
        interface.extend(0u32.to_le_bytes());
        // Option if_tsresol (9): 10^-9 s; end of options.
        interface.extend([9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        block(&mut out, INTERFACE_DESCRIPTION, &interface)?;
        Ok(Self { out })
    }

    /// Adds a frame; an error of the file system loses the frame.
    pub(crate) fn write(&mut self, at: Duration, frame: &[u8]) {
        let nanos = at.as_nanos() as u64;
        let mut body = Vec::with_capacity(frame.len() + 24);
        body.extend(0u32.to_le_bytes());
        body.extend(((nanos >> 32) as u32).to_le_bytes());
        body.extend((nanos as u32).to_le_bytes());
        body.extend((frame.len() as u32).to_le_bytes());
        body.extend((frame.len() as u32).to_le_bytes());
        body.extend(frame);
        let _ = block(&mut self.out, ENHANCED_PACKET, &body);
    }
}

fn block(out: &mut impl Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let padding = body.len().next_multiple_of(4) - body.len();
    let length = (body.len() + padding + 12) as u32;
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(body)?;
    out.write_all(&[0; 4][..padding])?;
    out.write_all(&length.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_section_an_interface_and_its_packets() {
        let directory = mpip_testing::Directory::new();
        let path = directory.join("packets.pcapng");
        let name = path.to_str().expect("a plain name");
        let mut writer = PcapWriter::create(name).expect("writable");
        writer.write(Duration::new(3, 5), &[7; 61]);
        drop(writer);
        let bytes = std::fs::read(&path).expect("written");
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        assert_eq!((word(0), word(4), word(8)), (SECTION_HEADER, 28, 0x1a2b_3c4d));
        assert_eq!((word(28), word(32), word(28 + 28)), (INTERFACE_DESCRIPTION, 32, 32));
        let packet = 28 + 32;
        assert_eq!((word(packet), word(packet + 4)), (ENHANCED_PACKET, 12 + 20 + 64));
        let nanos = (u64::from(word(packet + 12)) << 32) | u64::from(word(packet + 16));
        assert_eq!(nanos, 3_000_000_005);
        assert_eq!(word(packet + 20), 61);
        assert_eq!(bytes.len(), packet + 12 + 20 + 64);
    }
}
