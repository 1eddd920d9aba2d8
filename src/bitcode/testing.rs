//! Bitstreams made by hand, for tests only.

use super::bits::Writer;
use super::{
    BLOCKINFO, Block, BlockInfo, GLOBALVAL_SUMMARY, Item, MODULE, MODULE_STRTAB, Module, Record,
    Refusal,
};

macro_rules! fixture {
    ($name:literal) => {
        (
            include_bytes!(concat!("../../tests/fixtures/shards/", $name, ".bc")),
            include_str!(concat!("../../tests/fixtures/shards/", $name, ".modules")),
        )
    };
}
/// The fixtures, each with the true names of its modules, one a line.
pub(super) const FIXTURES: [(&[u8], &str); 6] = [
    fixture!("plain"),
    fixture!("archive"),
    fixture!("debug-vtables"),
    fixture!("coff"),
    fixture!("no-hashes"),
    fixture!("damaged"),
];
/// Its second name lost the `END_BLOCK` or `ENTRY` behind it.
pub(super) const BROKEN: (&[u8], &str) = fixture!("broken");

/// The width of abbreviation ids in every block made here.
const WIDTH: u32 = 3;

pub(super) fn file(content: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.fixed(0xDEC0_4342, 32);
    content(&mut writer);
    writer.finish()
}

/// A block at the top level.
pub(super) fn top(writer: &mut Writer, id: u64, content: impl FnOnce(&mut Writer)) {
    block_in(writer, 2, id, content);
}

/// A block inside another.
pub(super) fn block(writer: &mut Writer, id: u64, content: impl FnOnce(&mut Writer)) {
    block_in(writer, WIDTH, id, content);
}

fn block_in(writer: &mut Writer, outer: u32, id: u64, content: impl FnOnce(&mut Writer)) {
    let mut inner = Writer::default();
    content(&mut inner);
    inner.fixed(0, WIDTH);
    let body = inner.finish();
    writer.fixed(1, outer);
    writer.fixed(id, 8);
    writer.fixed(u64::from(WIDTH), 4);
    writer.align32();
    writer.fixed(body.len() as u64 / 4, 32);
    body.iter().for_each(|&byte| writer.fixed(u64::from(byte), 8));
}

pub(super) fn record(writer: &mut Writer, code: u64, operands: &[u64]) {
    writer.fixed(3, WIDTH);
    writer.vbr6(code);
    writer.vbr6(operands.len() as u64);
    operands.iter().for_each(|&operand| writer.vbr6(operand));
}

/// `DEFINE_ABBREV` of `(kind, value)`: `('l', n)` a literal, `('f', n)` fixed, `('v', n)` vbr, `('a', 0)`
/// array, `('c', 0)` char6, `('b', 0)` blob, `('?', 0)` none of these.
pub(super) fn define(writer: &mut Writer, operands: &[(char, u64)]) {
    writer.fixed(2, WIDTH);
    writer.fixed(operands.len() as u64, 5);
    for &(kind, value) in operands {
        writer.fixed(u64::from(kind == 'l'), 1);
        match kind {
            'l' => writer.fixed(value, 8),
            'f' | 'v' => {
                writer.fixed(if kind == 'f' { 1 } else { 2 }, 3);
                writer.fixed(value & 15 | u64::from(value > 15) << 4, 5);
                if value > 15 {
                    writer.fixed(value >> 4, 5);
                }
            }
            'a' => writer.fixed(3, 3),
            'c' => writer.fixed(4, 3),
            'b' => writer.fixed(5, 3),
            _ => writer.fixed(6, 3),
        }
    }
}

pub(super) fn entry(writer: &mut Writer, id: u64, name: &str) {
    let operands: Vec<u64> = [id].into_iter().chain(name.bytes().map(u64::from)).collect();
    record(writer, 1, &operands);
}

pub(super) fn modules(writer: &mut Writer, modules: &[Module]) {
    for module in modules {
        entry(writer, module.id, std::str::from_utf8(&module.name).unwrap());
        if let Some(hash) = module.hash {
            record(writer, 2, &hash.map(u64::from));
        }
    }
}

/// A shard with that content of its block of names, and `before` in its module before that block.
pub(super) fn shard(before: impl FnOnce(&mut Writer), names: impl FnOnce(&mut Writer)) -> Vec<u8> {
    file(|file| {
        top(file, MODULE, |module| {
            record(module, 1, &[2]);
            before(module);
            block(module, MODULE_STRTAB, names);
            block(module, GLOBALVAL_SUMMARY, |summary| {
                record(summary, 10, &[12]);
                record(summary, 20, &[1]);
            });
        });
        top(file, 23, |_| {});
    })
}

/// All records of a file's top-level blocks.
pub(super) fn records(bytes: &[u8]) -> Result<Vec<Record>, Refusal> {
    let mut info = BlockInfo::default();
    let mut file = Block::file(bytes)?;
    let mut records = Vec::new();
    while let Some(Item::Block(header)) = file.next_item()? {
        if header.id == BLOCKINFO {
            info.read(bytes, &header)?;
            continue;
        }
        let mut block = Block::open(bytes, &header, &info)?;
        while let Some(item) = block.next_item()? {
            if let Item::Record(record) = item {
                records.push(record.clone());
            }
        }
    }
    Ok(records)
}

pub(super) fn in_block(content: impl FnOnce(&mut Writer)) -> Result<Vec<Record>, Refusal> {
    records(&file(|file| top(file, 50, content)))
}

pub(super) fn plain(code: u64, operands: &[u64]) -> Record {
    Record { code, operands: operands.to_vec(), blob: None }
}
