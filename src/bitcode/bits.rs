//! Strings of bits: LLVM's `fixed`, `vbr` and alignment, read and written.
//! The lowest bit of each byte comes first. Knows nothing of blocks and records.

use super::Refusal;
use std::ops::Range;

/// A reading position inside a part of a file. Positions are bits from the file's start.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    bit: u64,
    end: u64,
}

impl<'a> Cursor<'a> {
    /// A cursor over `part`, in bytes, of a whole file; alignment counts from the file's start.
    pub(super) fn new(file: &'a [u8], part: Range<usize>) -> Result<Self, Refusal> {
        let (bit, end) = (part.start as u64 * 8, part.end as u64 * 8);
        let bytes = file.get(..part.end).ok_or(Refusal::Overrun { bit })?;
        Ok(Cursor { bytes, bit, end })
    }

    pub(super) fn bit(&self) -> u64 {
        self.bit
    }

    pub(super) fn at_end(&self) -> bool {
        self.bit == self.end
    }

    pub(super) fn malformed(&self, what: &'static str) -> Refusal {
        Refusal::Malformed { what, bit: self.bit }
    }

    /// The next `width` bits, at most 32.
    #[inline]
    pub(super) fn fixed(&mut self, width: u32) -> Result<u64, Refusal> {
        debug_assert!(width <= 32);
        let next = self.bit + u64::from(width);
        if next > self.end {
            return Err(Refusal::Overrun { bit: self.bit });
        }
        let rest = &self.bytes[(self.bit / 8) as usize..];
        let word = match rest.first_chunk() {
            Some(chunk) => u64::from_le_bytes(*chunk),
            None => rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
        };
        let value = word >> (self.bit % 8) & ((1 << width) - 1);
        self.bit = next;
        Ok(value)
    }

    /// A number in chunks of `width` bits, 2 to 32, whose top bit says that another chunk follows.
    #[inline]
    pub(super) fn vbr(&mut self, width: u32) -> Result<u64, Refusal> {
        debug_assert!((2..=32).contains(&width));
        let more = 1 << (width - 1);
        let (mut value, mut shift) = (0, 0);
        loop {
            let chunk = self.fixed(width)?;
            let data = chunk & (more - 1);
            if shift >= 64 || data << shift >> shift != data {
                return Err(self.malformed("a number has more than 64 bits"));
            }
            value |= data << shift;
            if chunk & more == 0 {
                return Ok(value);
            }
            shift += width - 1;
        }
    }

    /// Skips to the next 32-bit word.
    pub(super) fn align32(&mut self) -> Result<(), Refusal> {
        let next = self.bit.next_multiple_of(32);
        if next > self.end {
            return Err(Refusal::Overrun { bit: self.bit });
        }
        self.bit = next;
        Ok(())
    }

    /// The place, in the file, of the next `count` bytes; call it only where a byte begins.
    pub(super) fn bytes(&mut self, count: u64) -> Result<Range<usize>, Refusal> {
        debug_assert!(self.bit.is_multiple_of(8));
        if count > (self.end - self.bit) / 8 {
            return Err(Refusal::Overrun { bit: self.bit });
        }
        let start = (self.bit / 8) as usize;
        self.bit += count * 8;
        Ok(start..start + count as usize)
    }
}

/// Bits to be written, from a word's start on.
#[derive(Debug, Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    pending: u64,
    filled: u32,
}

impl Writer {
    /// The low `width` bits of `value`, at most 32; the others must be zero.
    pub(super) fn fixed(&mut self, value: u64, width: u32) {
        debug_assert!(width <= 32 && value >> width == 0);
        self.pending |= value << self.filled;
        self.filled += width;
        if self.filled >= 32 {
            self.bytes.extend_from_slice(&(self.pending as u32).to_le_bytes());
            self.pending >>= 32;
            self.filled -= 32;
        }
    }

    /// `value` in chunks of six bits.
    pub(super) fn vbr6(&mut self, mut value: u64) {
        while value >= 32 {
            self.fixed(value & 31 | 32, 6);
            value >>= 5;
        }
        self.fixed(value, 6);
    }

    /// Fills the word that was begun with zeros.
    pub(super) fn align32(&mut self) {
        if self.filled > 0 {
            self.fixed(0, 32 - self.filled);
        }
    }

    /// Whole words, the last one filled with zeros.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.align32();
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(bytes: &[u8]) -> Cursor<'_> {
        Cursor::new(bytes, 0..bytes.len()).unwrap()
    }

    #[test]
    fn bits_come_lowest_first_and_cross_bytes() {
        let mut cursor = cursor(&[0b1010_0101, 0b0000_0011]);
        assert_eq!(cursor.fixed(3), Ok(0b101));
        assert_eq!(cursor.fixed(6), Ok(0b110100));
        assert_eq!(cursor.fixed(7), Ok(1));
        assert_eq!(cursor.fixed(1), Err(Refusal::Overrun { bit: 16 }));
    }

    #[test]
    fn a_number_of_97_is_two_chunks_of_six_bits() {
        let mut writer = Writer::default();
        writer.vbr6(97);
        let bytes = writer.finish();
        assert_eq!(bytes, [0b1110_0001, 0, 0, 0]);
        assert_eq!(cursor(&bytes).vbr(6), Ok(97));
    }

    #[test]
    fn every_size_of_number_is_read_as_it_was_written() {
        let numbers = (0..64).flat_map(|bits| [1 << bits, (1u64 << bits) - 1]).chain([u64::MAX]);
        let mut writer = Writer::default();
        numbers.clone().for_each(|number| writer.vbr6(number));
        let bytes = writer.finish();
        let mut cursor = cursor(&bytes);
        for number in numbers {
            assert_eq!(cursor.vbr(6), Ok(number));
        }
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_malformed() {
        assert!(matches!(cursor(&[0xff; 64]).vbr(6), Err(Refusal::Malformed { .. })));
        let mut writer = Writer::default();
        (0..12).for_each(|_| writer.fixed(32, 6));
        writer.fixed(16, 6);
        assert!(matches!(cursor(&writer.finish()).vbr(6), Err(Refusal::Malformed { .. })));
    }

    #[test]
    fn reading_never_leaves_its_part_of_the_file() {
        let mut cursor = Cursor::new(&[0; 16], 4..8).unwrap();
        assert_eq!(cursor.bytes(5), Err(Refusal::Overrun { bit: 32 }));
        assert_eq!(cursor.bytes(4), Ok(4..8));
        assert!(cursor.at_end());
        assert!(Cursor::new(&[0; 4], 4..8).is_err());
    }
}
