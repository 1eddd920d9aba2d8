//! Abbreviations: how a stream lays out the fields of its records, as it says itself.
//! Knows neither where a definition holds nor what a record means.

use super::bits::Cursor;
use super::{Record, Refusal};

/// More operands than any abbreviation of LLVM has. Keeps the cost of a record, which may be three
/// bits long, within a constant.
const MOST_OPERANDS: u64 = 64;

#[derive(Clone, Copy, Debug)]
enum Scalar {
    Literal(u64),
    Fixed(u32),
    Vbr(u32),
    Char6,
}

impl Scalar {
    #[inline]
    fn read(self, cursor: &mut Cursor<'_>) -> Result<u64, Refusal> {
        const CHAR6: &[u8; 64] =
            b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._";
        match self {
            Scalar::Literal(value) => Ok(value),
            Scalar::Fixed(width) => cursor.fixed(width),
            Scalar::Vbr(width) => cursor.vbr(width),
            Scalar::Char6 => Ok(u64::from(CHAR6[cursor.fixed(6)? as usize])),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Tail {
    Nothing,
    Array(Scalar),
    Blob,
}

/// How the fields of a record are laid out: the code, scalar operands, then perhaps many more.
#[derive(Debug)]
pub(super) struct Abbreviation {
    code: Scalar,
    operands: Vec<Scalar>,
    tail: Tail,
}

enum Operand {
    Scalar(Scalar),
    Array,
    Blob,
}

impl Abbreviation {
    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Self, Refusal> {
        let count = cursor.vbr(5)?;
        if count > MOST_OPERANDS {
            return Err(cursor.malformed("an abbreviation has too many operands"));
        }
        let mut scalars = Vec::new();
        let mut tail = Tail::Nothing;
        for left in (0..count).rev() {
            match Operand::read(cursor)? {
                Operand::Scalar(scalar) => scalars.push(scalar),
                Operand::Blob if left == 0 => tail = Tail::Blob,
                Operand::Array if left == 1 => {
                    let Operand::Scalar(element) = Operand::read(cursor)? else {
                        return Err(cursor.malformed("an array's elements are no numbers"));
                    };
                    if matches!(element, Scalar::Literal(_)) {
                        return Err(cursor.malformed("an array's elements take no room"));
                    }
                    tail = Tail::Array(element);
                    break;
                }
                _ => return Err(cursor.malformed("an array or blob is not the last operand")),
            }
        }
        if scalars.is_empty() {
            return Err(cursor.malformed("an abbreviation has no record code"));
        }
        Ok(Abbreviation { code: scalars.remove(0), operands: scalars, tail })
    }

    pub(super) fn record(
        &self,
        cursor: &mut Cursor<'_>,
        record: &mut Record,
    ) -> Result<(), Refusal> {
        record.operands.clear();
        record.blob = None;
        record.code = self.code.read(cursor)?;
        for operand in &self.operands {
            record.operands.push(operand.read(cursor)?);
        }
        match self.tail {
            Tail::Nothing => {}
            Tail::Array(element) => {
                for _ in 0..cursor.vbr(6)? {
                    record.operands.push(element.read(cursor)?);
                }
            }
            Tail::Blob => {
                let length = cursor.vbr(6)?;
                cursor.align32()?;
                record.blob = Some(cursor.bytes(length)?);
                cursor.align32()?;
            }
        }
        Ok(())
    }
}

impl Operand {
    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Refusal> {
        if cursor.fixed(1)? == 1 {
            return Ok(Operand::Scalar(Scalar::Literal(cursor.vbr(8)?)));
        }
        let kind = cursor.fixed(3)?;
        let scalar = match kind {
            1 | 2 => match (kind, cursor.vbr(5)?) {
                (_, 0) => Scalar::Literal(0),
                (1, width @ 1..=32) => Scalar::Fixed(width as u32),
                (2, width @ 2..=32) => Scalar::Vbr(width as u32),
                _ => return Err(cursor.malformed("a number has an unknown width")),
            },
            3 => return Ok(Operand::Array),
            4 => Scalar::Char6,
            5 => return Ok(Operand::Blob),
            _ => return Err(cursor.malformed("an abbreviation has an operand of unknown kind")),
        };
        Ok(Operand::Scalar(scalar))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{define, file, in_block, plain, record, records, top};
    use super::*;

    #[test]
    fn abbreviated_records_are_read_by_their_definition() {
        let found = in_block(|block| {
            define(block, &[('l', 9), ('f', 5), ('v', 4), ('f', 0), ('a', 0), ('c', 0)]);
            block.fixed(4, 3);
            block.fixed(21, 5);
            block.fixed(0b0001_1010, 8);
            block.vbr6(4);
            [0, 26, 52, 63].iter().for_each(|&letter| block.fixed(letter, 6));
        });
        let operands = [21, 10, 0, b'a'.into(), b'A'.into(), b'0'.into(), b'_'.into()];
        assert_eq!(found, Ok(vec![plain(9, &operands)]));
    }

    #[test]
    fn a_blob_is_found_between_words() {
        let bytes = file(|file| {
            top(file, 50, |block| {
                define(block, &[('l', 1), ('b', 0)]);
                block.fixed(4, 3);
                block.vbr6(5);
                block.align32();
                b"hello".iter().for_each(|&byte| block.fixed(byte.into(), 8));
                block.align32();
                record(block, 2, &[3]);
            });
        });
        let found = records(&bytes).unwrap();
        assert_eq!(bytes[found[0].blob.clone().unwrap()], *b"hello");
        assert_eq!(found[1], plain(2, &[3]));
    }

    #[test]
    fn unknown_abbreviations_are_malformed() {
        let definitions: [&[(char, u64)]; 10] = [
            &[],
            &[('l', 1), ('?', 0)],
            &[('a', 0), ('f', 8)],
            &[('b', 0)],
            &[('l', 1), ('a', 0)],
            &[('l', 1), ('a', 0), ('f', 0)],
            &[('l', 1), ('a', 0), ('l', 3)],
            &[('l', 1), ('a', 0), ('a', 0), ('f', 8)],
            &[('l', 1), ('f', 33)],
            &[('l', 1), ('v', 1)],
        ];
        for definition in definitions {
            let found = in_block(|block| define(block, definition));
            assert!(matches!(found, Err(Refusal::Malformed { .. })), "{definition:?} {found:?}");
        }
        let undefined = in_block(|block| block.fixed(5, 3));
        assert!(matches!(undefined, Err(Refusal::Malformed { .. })));
    }
}
