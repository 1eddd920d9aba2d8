//! The walk through a bitstream: blocks, abbreviations and records.
//! A block is skipped by its length word unless it is opened, so what is unknown costs nothing.
//! Knows the form only: what a block or a record means is the caller's business.

use super::abbreviation::Abbreviation;
use super::bits::Cursor;
use super::{BLOCKINFO, Refusal};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

const MAGIC: [u8; 4] = [0x42, 0x43, 0xC0, 0xDE];
const WRAPPER_MAGIC: [u8; 4] = 0x0B17_C0DE_u32.to_le_bytes();
/// `SETBID`, a record of BLOCKINFO: the definitions that follow are for that block.
const SETBID: u64 = 1;
/// More abbreviations than LLVM has for any kind of block. Keeps the cost of opening one, which may be
/// empty, within a constant.
const MOST_SHARED: usize = 256;

/// Where a block lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of block.
    pub id: u64,
    /// The width in bits of abbreviation ids inside.
    pub width: u32,
    /// The place in the file of the length word, in bytes.
    pub length_at: usize,
    /// The place in the file of what follows the length word, up to the end of the block, in bytes.
    pub body: Range<usize>,
}

/// A record, however it was laid out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The kind of record, within its block.
    pub code: u64,
    /// The operands, those of an array among them.
    pub operands: Vec<u64>,
    /// The place in the file of a blob, in bytes.
    pub blob: Option<Range<usize>>,
}

/// What a block holds, but for definitions of abbreviations, which the walk keeps to itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item<'r> {
    /// A block inside; the walk goes on behind it.
    Block(Header),
    /// A record, valid until the next item is asked for.
    Record(&'r Record),
}

/// An open block: a position in it, and the abbreviations known there.
#[derive(Debug)]
pub struct Block<'a> {
    cursor: Cursor<'a>,
    width: u32,
    is_file: bool,
    abbreviations: Vec<Rc<Abbreviation>>,
    record: Record,
}

enum Step {
    End,
    Block(Header),
    Definition(Abbreviation),
    Record,
}

impl<'a> Block<'a> {
    /// Opens the top level of a file of raw bitcode.
    ///
    /// # Errors
    /// If the magic is another one.
    pub fn file(file: &'a [u8]) -> Result<Self, Refusal> {
        match file.first_chunk() {
            Some(&MAGIC) => {}
            Some(&WRAPPER_MAGIC) => return Err(Refusal::Wrapped),
            _ => return Err(Refusal::NotBitcode),
        }
        let cursor = Cursor::new(file, MAGIC.len()..file.len())?;
        Ok(Block {
            cursor,
            width: 2,
            is_file: true,
            abbreviations: Vec::new(),
            record: Record::default(),
        })
    }

    /// Opens the block at `header` of the same file, with the abbreviations that `info` has for it.
    ///
    /// # Errors
    /// If the header is not one of this file.
    pub fn open(file: &'a [u8], header: &Header, info: &BlockInfo) -> Result<Self, Refusal> {
        Ok(Block {
            cursor: Cursor::new(file, header.body.clone())?,
            width: header.width,
            is_file: false,
            abbreviations: info.0.get(&header.id).cloned().unwrap_or_default(),
            record: Record::default(),
        })
    }

    /// The next block or record, or `None` at the end.
    ///
    /// # Errors
    /// If the bitstream is broken here; then there is nothing more to be had from this block.
    pub fn next_item(&mut self) -> Result<Option<Item<'_>>, Refusal> {
        loop {
            match self.step()? {
                Step::End => return Ok(None),
                Step::Block(header) => return Ok(Some(Item::Block(header))),
                Step::Definition(abbreviation) => self.abbreviations.push(Rc::new(abbreviation)),
                Step::Record => return Ok(Some(Item::Record(&self.record))),
            }
        }
    }

    fn step(&mut self) -> Result<Step, Refusal> {
        if self.is_file && self.cursor.at_end() {
            return Ok(Step::End);
        }
        let id = self.cursor.fixed(self.width)?;
        if self.is_file && id != 1 {
            return Err(self.cursor.malformed("something other than a block is at the top level"));
        }
        match id {
            0 => {
                self.cursor.align32()?;
                if !self.cursor.at_end() {
                    return Err(self.cursor.malformed("a block ends before its length says so"));
                }
                Ok(Step::End)
            }
            1 => self.header().map(Step::Block),
            2 => Abbreviation::read(&mut self.cursor).map(Step::Definition),
            3 => self.unabbreviated().map(|()| Step::Record),
            _ => {
                let known = self.abbreviations.get(id as usize - 4);
                let known = known.ok_or(self.cursor.malformed("an abbreviation is not defined"))?;
                known.record(&mut self.cursor, &mut self.record)?;
                Ok(Step::Record)
            }
        }
    }

    fn header(&mut self) -> Result<Header, Refusal> {
        let id = self.cursor.vbr(8)?;
        let width = self.cursor.vbr(4)?;
        if !(2..=32).contains(&width) {
            return Err(self.cursor.malformed("a block has abbreviation ids of an unknown width"));
        }
        self.cursor.align32()?;
        let length_at = (self.cursor.bit() / 8) as usize;
        let words = self.cursor.fixed(32)?;
        let body = self.cursor.bytes(words * 4)?;
        Ok(Header { id, width: width as u32, length_at, body })
    }

    fn unabbreviated(&mut self) -> Result<(), Refusal> {
        let Record { code, operands, blob } = &mut self.record;
        operands.clear();
        *blob = None;
        *code = self.cursor.vbr(6)?;
        for _ in 0..self.cursor.vbr(6)? {
            operands.push(self.cursor.vbr(6)?);
        }
        Ok(())
    }
}

/// The abbreviations that blocks begin with, as the BLOCKINFO blocks so far say.
#[derive(Clone, Debug, Default)]
pub struct BlockInfo(BTreeMap<u64, Vec<Rc<Abbreviation>>>);

impl BlockInfo {
    /// Adds what the BLOCKINFO block at `header` says.
    ///
    /// # Errors
    /// If that block is broken, holds another one, or defines an abbreviation for no block.
    pub fn read(&mut self, file: &[u8], header: &Header) -> Result<(), Refusal> {
        debug_assert_eq!(header.id, BLOCKINFO);
        let mut block = Block::open(file, header, &BlockInfo::default())?;
        let mut target = None;
        loop {
            match block.step()? {
                Step::End => return Ok(()),
                Step::Block(_) => return Err(block.cursor.malformed("BLOCKINFO holds a block")),
                Step::Definition(abbreviation) => {
                    let id = target.ok_or(
                        block.cursor.malformed("BLOCKINFO defines an abbreviation for no block"),
                    )?;
                    let known = self.0.entry(id).or_default();
                    if known.len() == MOST_SHARED {
                        return Err(block.cursor.malformed("BLOCKINFO has too many abbreviations"));
                    }
                    known.push(Rc::new(abbreviation));
                }
                Step::Record if block.record.code == SETBID => {
                    target = block.record.operands.first().copied();
                }
                Step::Record => {}
            }
        }
    }

    /// Whether there are abbreviations for blocks of that id.
    pub fn knows(&self, id: u64) -> bool {
        self.0.contains_key(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{block, define, file, in_block, plain, record, records, top};
    use super::*;

    #[test]
    fn blocks_begin_with_the_abbreviations_of_blockinfo() {
        let found = records(&file(|file| {
            top(file, BLOCKINFO, |info| {
                record(info, SETBID, &[50]);
                define(info, &[('l', 7), ('f', 32)]);
                record(info, SETBID, &[51]);
                define(info, &[('l', 8)]);
            });
            top(file, 50, |block| {
                block.fixed(4, 3);
                block.fixed(0xffff_ffff, 32);
            });
        }));
        assert_eq!(found, Ok(vec![plain(7, &[0xffff_ffff])]));
    }

    #[test]
    fn a_block_is_skipped_unread() {
        let found = in_block(|outer| {
            block(outer, 51, |inner| (0..9).for_each(|_| inner.fixed(0xffff_ffff, 32)));
            record(outer, 1, &[]);
        });
        assert_eq!(found, Ok(vec![plain(1, &[])]));
    }

    #[test]
    fn a_record_that_reaches_beyond_its_block_is_an_overrun() {
        let bytes = file(|file| {
            top(file, 50, |block| {
                block.fixed(3, 3);
                block.vbr6(1);
                block.vbr6(u64::MAX);
            });
            top(file, 51, |block| (0..99).for_each(|_| block.fixed(0, 32)));
        });
        assert!(matches!(records(&bytes), Err(Refusal::Overrun { .. })));
    }

    #[test]
    fn a_block_must_end_where_its_length_says() {
        let early = in_block(|block| block.fixed(0, 32));
        assert!(matches!(early, Err(Refusal::Malformed { .. })));
        let mut bytes = file(|file| top(file, 50, |block| record(block, 1, &[])));
        bytes[8] += 1;
        assert!(matches!(records(&bytes), Err(Refusal::Overrun { .. })));
    }
}
