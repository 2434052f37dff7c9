use core::fmt;

use crate::bytes::{Reader, Writer};
use crate::varint::{VARINT_MAX, varint_len};
use crate::{Error, PACKET_NUMBER_MAX, PathId};

/// Packet numbers that arrived, without a gap: `first..=last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckRange {
    /// Smallest number of the range.
    pub first: u64,
    /// Largest number of the range.
    pub last: u64,
}

/// Packets of the lane that arrived with each ECN mark, counted since the lane began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EcnCounts {
    /// Marked ECT(0).
    pub ect0: u64,
    /// Marked ECT(1).
    pub ect1: u64,
    /// Marked CE.
    pub ce: u64,
}

/// What arrived on a lane, and when.
///
/// From it the sender of that lane computes round-trip time, one-way delay, delivery rate and loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback<'a> {
    /// The path whose lane is acknowledged; the frame may travel on any path.
    pub path: PathId,
    /// When the largest number arrived: microseconds of the receiver's clock, modulo 2^32.
    pub received_at: u32,
    /// Microseconds from the arrival of the largest number to the sending of this frame, at most
    /// [`VARINT_MAX`].
    pub delay: u64,
    /// The numbers that arrived.
    pub ranges: Ranges<'a>,
    /// ECN marks, when the receiver can see them: then the frame has type 0x03, otherwise 0x02.
    pub ecn: Option<EcnCounts>,
}

impl<'a> Feedback<'a> {
    /// The largest packet number acknowledged.
    #[inline]
    pub const fn largest(&self) -> u64 {
        self.ranges.largest
    }

    pub(crate) fn read(reader: &mut Reader<'a>, with_ecn: bool) -> Result<Self, Error> {
        let path = PathId::read(reader)?;
        let largest = reader.varint("largest packet number")?;
        let received_at = reader.u32("receive time")?;
        let delay = reader.varint("feedback delay")?;
        let ranges = Ranges::read(reader, largest)?;
        let ecn = if with_ecn {
            Some(EcnCounts {
                ect0: reader.varint("ECT(0) count")?,
                ect1: reader.varint("ECT(1) count")?,
                ce: reader.varint("CE count")?,
            })
        } else {
            None
        };
        Ok(Self { path, received_at, delay, ranges, ecn })
    }

    pub(crate) fn write(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        writer.varint("path identifier", u64::from(self.path.0))?;
        writer.varint("largest packet number", self.largest())?;
        writer.put(&self.received_at.to_be_bytes())?;
        writer.varint("feedback delay", self.delay)?;
        self.ranges.write(writer)?;
        if let Some(EcnCounts { ect0, ect1, ce }) = self.ecn {
            writer.varint("ECT(0) count", ect0)?;
            writer.varint("ECT(1) count", ect1)?;
            writer.varint("CE count", ce)?;
        }
        Ok(())
    }

    pub(crate) fn encoded_len(&self) -> usize {
        let ecn = self
            .ecn
            .map_or(0, |ecn| varint_len(ecn.ect0) + varint_len(ecn.ect1) + varint_len(ecn.ce));
        self.path.varint_len()
            + varint_len(self.largest())
            + 4
            + varint_len(self.delay)
            + self.ranges.encoded_len()
            + ecn
    }
}

/// The ranges of a [`Feedback`]: of a received frame, or of a slice to be sent.
///
/// At least one and at most [`Self::MAX`], from the largest down, with at least one missing number
/// between neighbours.
#[derive(Clone, Copy)]
pub struct Ranges<'a> {
    largest: u64,
    count: u8,
    source: Source<'a>,
}

#[derive(Clone, Copy)]
enum Source<'a> {
    /// From the first range on. Checked when it was parsed.
    Encoded(&'a [u8]),
    Slice(&'a [AckRange]),
}

impl<'a> Ranges<'a> {
    /// Most ranges in one frame.
    pub const MAX: usize = 32;

    /// Ranges to be sent, from the largest down.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] when there are none or more than [`Self::MAX`], or when they are not in
    /// order, touch each other, or exceed [`PACKET_NUMBER_MAX`].
    pub fn new(ranges: &'a [AckRange]) -> Result<Self, Error> {
        let error = |field, expected, got| Err(Error::Value { field, offset: 0, expected, got });
        let Some(largest) = ranges.first().map(|range| range.last) else {
            return error("number of ranges", "at least 1", 0);
        };
        if ranges.len() > Self::MAX {
            return error("number of ranges", "at most 32", ranges.len() as u64);
        }
        if largest > PACKET_NUMBER_MAX {
            return error("largest packet number", "at most 2^62 - 1", largest);
        }
        if let Some(range) = ranges.iter().find(|range| range.first > range.last) {
            return error("first number of a range", "at most its last", range.first);
        }
        for pair in ranges.windows(2) {
            if pair[1].last.saturating_add(1) >= pair[0].first {
                let expected = "at least 2 below the range before";
                return error("last number of a range", expected, pair[1].last);
            }
        }
        Ok(Self { largest, count: ranges.len() as u8, source: Source::Slice(ranges) })
    }

    /// Number of ranges, 1..=[`Self::MAX`].
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// The ranges from the largest down.
    #[inline]
    pub const fn iter(&self) -> RangeIter<'a> {
        RangeIter(match self.source {
            Source::Encoded(bytes) => IterSource::Encoded {
                reader: Reader::new(bytes),
                left: self.count,
                next_last: Some(self.largest),
            },
            Source::Slice(slice) => IterSource::Slice(slice),
        })
    }

    fn read(reader: &mut Reader<'a>, largest: u64) -> Result<Self, Error> {
        let max = Self::MAX as u64 - 1;
        let more = reader.varint_max("number of further ranges", max, "at most 31")?;
        let bytes = reader.rest();
        let start = reader.offset();
        let mut smallest = None;
        for _ in 0..=more {
            let last = match smallest {
                None => largest,
                Some(smallest) => below(reader, "gap", smallest, 2)?,
            };
            smallest = Some(below(reader, "length of a range", last, 0)?);
        }
        let source = Source::Encoded(&bytes[..reader.offset() - start]);
        Ok(Self { largest, count: more as u8 + 1, source })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        writer.varint("number of further ranges", u64::from(self.count) - 1)?;
        match self.source {
            Source::Encoded(bytes) => writer.put(bytes),
            Source::Slice(slice) => {
                let mut smallest = None;
                for range in slice {
                    if let Some(smallest) = smallest {
                        writer.varint("gap", gap(smallest, range))?;
                    }
                    writer.varint("length of a range", range.last - range.first)?;
                    smallest = Some(range.first);
                }
                Ok(())
            }
        }
    }

    fn encoded_len(&self) -> usize {
        let count = varint_len(u64::from(self.count) - 1);
        match self.source {
            Source::Encoded(bytes) => count + bytes.len(),
            Source::Slice(slice) => {
                let lengths: usize =
                    slice.iter().map(|range| varint_len(range.last - range.first)).sum();
                let gaps: usize =
                    slice.windows(2).map(|pair| varint_len(gap(pair[0].first, &pair[1]))).sum();
                count + lengths + gaps
            }
        }
    }
}

/// The gap as RFC 9000 section 19.3.1 counts it: missing numbers less one.
const fn gap(smallest: u64, next: &AckRange) -> u64 {
    smallest - next.last - 2
}

/// Reads a variable-length integer and returns `from` less it and `extra`.
fn below(
    reader: &mut Reader<'_>,
    field: &'static str,
    from: u64,
    extra: u64,
) -> Result<u64, Error> {
    let offset = reader.offset();
    let distance = reader.varint(field)?;
    from.checked_sub(distance.saturating_add(extra)).ok_or(Error::Value {
        field,
        offset,
        expected: "no packet number below zero",
        got: distance,
    })
}

impl PartialEq for Ranges<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Ranges<'_> {}

impl fmt::Debug for Ranges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for Ranges<'a> {
    type Item = AckRange;
    type IntoIter = RangeIter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Iterator over [`Ranges`], from the largest down.
#[derive(Clone, Debug)]
pub struct RangeIter<'a>(IterSource<'a>);

#[derive(Clone, Debug)]
enum IterSource<'a> {
    Encoded { reader: Reader<'a>, left: u8, next_last: Option<u64> },
    Slice(&'a [AckRange]),
}

impl Iterator for RangeIter<'_> {
    type Item = AckRange;

    #[inline]
    fn next(&mut self) -> Option<AckRange> {
        match &mut self.0 {
            IterSource::Encoded { reader, left, next_last } => {
                let last = next_last.take()?;
                let first = below(reader, "length of a range", last, 0).ok()?;
                *left -= 1;
                if *left > 0 {
                    *next_last = below(reader, "gap", first, 2).ok();
                }
                Some(AckRange { first, last })
            }
            IterSource::Slice(slice) => {
                let (first, rest) = slice.split_first()?;
                *slice = rest;
                Some(*first)
            }
        }
    }
}

// The iterator counts down from at most MAX, and a packet number fits a variable-length integer.
const _: () = assert!(Ranges::MAX <= u8::MAX as usize && PACKET_NUMBER_MAX <= VARINT_MAX);
