//! What an index shard says of its modules, and whether that is what a job file says.
//! Reads the block of module names and the first record of the summary, nothing else.
//! Does not know how names are changed, nor where the expected ones come from.

use super::{
    BLOCKINFO, Block, BlockInfo, GLOBALVAL_SUMMARY, Header, Item, MODULE, MODULE_STRTAB, Record,
    Refusal,
};

/// `MST_CODE_ENTRY`: a module's id and name.
pub(super) const ENTRY: u64 = 1;
/// `MST_CODE_HASH`: the hash of the module before it.
pub(super) const HASH: u64 = 2;
/// `FS_VERSION`: the first record of a summary.
const VERSION: u64 = 10;
/// `MODULE_CODE_HASH`: a module's own hash, in the module.
const MODULE_HASH: u64 = 17;

/// What is read of an index shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The version of the summary: 12 in LLVM 21 and 22, 14 in LLVM 23.
    pub version: u64,
    /// The modules in the shard's order, which is that of their names.
    pub modules: Vec<Module>,
}

/// A module as a shard knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The number by which the summary refers to the module.
    pub id: u64,
    /// The path that clang must be given, byte for byte.
    pub name: Vec<u8>,
    /// The SHA-1 of the module's bitcode, if it was made with one.
    pub hash: Option<[u32; 5]>,
}

impl Shard {
    /// Reads as little of a shard as can be. What is merely unknown is passed over.
    ///
    /// # Errors
    /// If `bytes` is not an index shard, or is broken before all was read.
    pub fn read(bytes: &[u8]) -> Result<Shard, Refusal> {
        let mut info = BlockInfo::default();
        let module = first_module(bytes, &mut info)?;
        let (mut modules, mut version) = (None, None);
        let mut block = Block::open(bytes, &module, &info)?;
        while let Some(item) = block.next_item()? {
            let Item::Block(header) = item else { continue };
            match header.id {
                BLOCKINFO => info.read(bytes, &header)?,
                MODULE_STRTAB if modules.is_some() => {
                    return Err(Refusal::Twice("MODULE_STRTAB_BLOCK"));
                }
                MODULE_STRTAB => modules = Some(Table::read(bytes, &header, &info)?.modules),
                GLOBALVAL_SUMMARY => version = Some(summary_version(bytes, &header, &info)?),
                _ => {}
            }
            if modules.is_some() && version.is_some() {
                break;
            }
        }
        let modules = modules.ok_or(Refusal::Missing("MODULE_STRTAB_BLOCK"))?;
        let version = version.ok_or(Refusal::Missing("GLOBALVAL_SUMMARY_BLOCK"))?;
        Ok(Shard { version, modules })
    }
}

fn first_module(bytes: &[u8], info: &mut BlockInfo) -> Result<Header, Refusal> {
    let mut file = Block::file(bytes)?;
    while let Some(Item::Block(header)) = file.next_item()? {
        match header.id {
            BLOCKINFO => info.read(bytes, &header)?,
            MODULE => return Ok(header),
            _ => {}
        }
    }
    Err(Refusal::Missing("MODULE_BLOCK"))
}

fn summary_version(bytes: &[u8], header: &Header, info: &BlockInfo) -> Result<u64, Refusal> {
    match Block::open(bytes, header, info)?.next_item()? {
        Some(Item::Record(Record { code: VERSION, operands, .. })) => {
            operands.first().copied().ok_or(Refusal::NoVersion)
        }
        _ => Err(Refusal::NoVersion),
    }
}

/// The content of `MODULE_STRTAB_BLOCK`.
pub(super) struct Table {
    pub(super) modules: Vec<Module>,
    /// Something that a reader may pass over, but that a rewrite would lose.
    pub(super) foreign: Option<Refusal>,
}

impl Table {
    pub(super) fn read(bytes: &[u8], header: &Header, info: &BlockInfo) -> Result<Self, Refusal> {
        let mut table = Table { modules: Vec::new(), foreign: None };
        let mut block = Block::open(bytes, header, info)?;
        let mut after_entry = false;
        while let Some(item) = block.next_item()? {
            let is_entry = matches!(item, Item::Record(Record { code: ENTRY, .. }));
            match item {
                Item::Record(record) if record.code == ENTRY => table.modules.push(entry(record)?),
                Item::Record(record) if record.code == HASH => {
                    let module = table.modules.last_mut().filter(|_| after_entry);
                    module.ok_or(Refusal::StrayHash)?.hash = Some(hash(&record.operands)?);
                }
                Item::Record(record) => table.foreign = Some(Refusal::ForeignRecord(record.code)),
                Item::Block(header) => table.foreign = Some(Refusal::ForeignBlock(header.id)),
            }
            after_entry = is_entry;
        }
        Ok(table)
    }
}

fn entry(record: &Record) -> Result<Module, Refusal> {
    let (&id, name) = record.operands.split_first().ok_or(Refusal::Entry)?;
    let name = name.iter().map(|&byte| u8::try_from(byte)).collect::<Result<_, _>>();
    Ok(Module { id, name: name.map_err(|_| Refusal::Entry)?, hash: None })
}

fn hash(operands: &[u64]) -> Result<[u32; 5], Refusal> {
    let mut words = [0; 5];
    if operands.len() != words.len() {
        return Err(Refusal::Hash);
    }
    for (word, &operand) in words.iter_mut().zip(operands) {
        *word = u32::try_from(operand).map_err(|_| Refusal::Hash)?;
    }
    Ok(words)
}

/// The hash that a file of bitcode carries of its ThinLTO module: the one that a shard repeats.
/// Of two modules in a file (split LTO units) it is the one with a summary.
///
/// # Errors
/// If `bytes` is not raw bitcode with a ThinLTO module, or is broken.
pub fn module_hash(bytes: &[u8]) -> Result<Option<[u32; 5]>, Refusal> {
    let mut info = BlockInfo::default();
    let mut file = Block::file(bytes)?;
    while let Some(Item::Block(header)) = file.next_item()? {
        match header.id {
            BLOCKINFO => info.read(bytes, &header)?,
            MODULE => {
                let (is_thin, hash) = own_hash(bytes, &header, &mut info)?;
                if is_thin {
                    return Ok(hash);
                }
            }
            _ => {}
        }
    }
    Err(Refusal::Missing("ThinLTO module"))
}

/// Whether a module has a summary, and its hash.
fn own_hash(
    bytes: &[u8],
    module: &Header,
    info: &mut BlockInfo,
) -> Result<(bool, Option<[u32; 5]>), Refusal> {
    let mut block = Block::open(bytes, module, info)?;
    let (mut found, mut is_thin) = (None, false);
    while let Some(item) = block.next_item()? {
        match item {
            Item::Block(header) if header.id == BLOCKINFO => info.read(bytes, &header)?,
            Item::Block(header) => is_thin |= header.id == GLOBALVAL_SUMMARY,
            Item::Record(record) if record.code == MODULE_HASH => {
                found = Some(hash(&record.operands)?);
            }
            Item::Record(_) => {}
        }
    }
    Ok((is_thin, found))
}

/// How the names in a shard compare with the expected ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// They are the same.
    Same,
    /// They differ only in what LLD up to 22 damages (llvm#194318). The shard must be rewritten with
    /// the expected names, and with the modules' own hashes where [`hash_in_doubt`].
    DamagedNonAscii,
    /// They are different modules.
    Different {
        /// The first position that differs.
        position: usize,
        /// The name in the shard there, if there is one.
        found: Option<String>,
        /// The expected name there, if there is one.
        expected: Option<String>,
    },
}

/// How many bytes behind a non-ASCII one LLD up to 22 damages.
///
/// Measured with LLD 22.1.8: it writes a byte from 0x80 on as a sign-extended 32-bit number into a
/// field of 8 bits. The 24 bits of ones are or-ed into the bits that follow, up to the end of the
/// 32-bit word or, if the byte itself crosses one, into the next word; no bit is ever cleared, and no
/// length changes. `bä.o` became `62 c3 ff ff ff`, `é.o` became `c3 af ff ff` (true: `c3 a9 2e 6f`).
/// The abbreviation id of HASH is all ones, so it survives; behind `é.o` and `zц` the low bits of the
/// hash's first word became ones (0x178cb681 -> 0x178cb69f, 0x5d404f56 -> 0x5d405bff).
const REACH: usize = 3;

/// Does the shard name exactly these modules: the primary and its imports, sorted by bytes, each once?
pub fn names_agree(shard: &Shard, expected: &[&str]) -> Agreement {
    let mut agreement = Agreement::Same;
    for position in 0..shard.modules.len().max(expected.len()) {
        let found = shard.modules.get(position).map(|module| &module.name[..]);
        let wanted = expected.get(position).copied();
        match (found, wanted) {
            (Some(found), Some(wanted)) if found == wanted.as_bytes() => {}
            (Some(found), Some(wanted)) if is_damaged(found, wanted.as_bytes()) => {
                agreement = Agreement::DamagedNonAscii;
            }
            _ => {
                let found = found.map(|name| String::from_utf8_lossy(name).into_owned());
                return Agreement::Different { position, found, expected: wanted.map(Into::into) };
            }
        }
    }
    agreement
}

fn is_damaged(found: &[u8], wanted: &[u8]) -> bool {
    found.len() == wanted.len()
        && (0..found.len()).all(|at| {
            let near = &wanted[at.saturating_sub(REACH)..at];
            found[at] == wanted[at] || (!near.is_ascii() && found[at] & wanted[at] == wanted[at])
        })
}

/// Whether LLD up to 22 damages the hash behind this name too, differently from shard to shard.
///
/// clang makes the names of promoted symbols from it. With the true names alone a link of `aaaa.o` and
/// `zц` failed: `undefined hidden symbol: local.llvm.10970768690415133269`. [`module_hash`] of the
/// module's own bitcode is the true one.
pub fn hash_in_doubt(name: &[u8]) -> bool {
    !name[name.len().saturating_sub(REACH)..].is_ascii()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, BROKEN, FIXTURES, block, entry, file, record, top};
    use super::*;

    fn agreement(bytes: &[u8], expected: &str) -> Agreement {
        let expected: Vec<_> = expected.lines().collect();
        names_agree(&Shard::read(bytes).unwrap(), &expected)
    }

    #[test]
    fn real_shards_name_the_modules_of_their_jobs() {
        for (bytes, expected) in FIXTURES {
            let damaged = !expected.is_ascii();
            let wanted = if damaged { Agreement::DamagedNonAscii } else { Agreement::Same };
            assert_eq!(agreement(bytes, expected), wanted);
            assert_eq!(Shard::read(bytes).unwrap().version, 12);
        }
    }

    #[test]
    fn hashes_are_there_unless_the_modules_have_none() {
        for (bytes, _) in FIXTURES {
            let hashed = bytes != FIXTURES[4].0;
            let modules = Shard::read(bytes).unwrap().modules;
            assert!(modules.iter().all(|module| module.hash.is_some() == hashed));
        }
    }

    #[test]
    fn a_block_broken_by_a_name_is_refused() {
        assert!(matches!(Shard::read(BROKEN.0), Err(Refusal::Overrun { .. })));
    }

    #[test]
    fn other_missing_and_additional_names_are_different() {
        let (bytes, expected) = FIXTURES[0];
        let different = |position, found: Option<&str>, expected: Option<&str>| {
            let (found, expected) = (found.map(Into::into), expected.map(Into::into));
            Agreement::Different { position, found, expected }
        };
        let one_less = expected.trim_end().rsplit_once('\n').unwrap().0;
        assert_eq!(agreement(bytes, one_less), different(2, Some("main.o"), None));
        let one_more = format!("{expected}z.o");
        assert_eq!(agreement(bytes, &one_more), different(3, None, Some("z.o")));
        let other = expected.replace("deep", "dEep");
        let wanted = different(1, Some("deep/g.o"), Some("dEep/g.o"));
        assert_eq!(agreement(bytes, &other), wanted);
    }

    #[test]
    fn damage_is_believed_only_where_lld_does_it() {
        assert!(is_damaged(b"b\xc3\xff\xff\xff", "bä.o".as_bytes()));
        assert!(is_damaged(b"\xc3\xff\xff\x2f\x6f", "äb.o".as_bytes()));
        for (found, why) in [
            (b"c\xc3\xff\xff\xff".as_slice(), "a byte before the first one that is not ASCII"),
            (b"b\xc3\xff\xff", "the length"),
            (b"b\xc3\xff\xff\x0f", "a bit that became zero"),
        ] {
            assert!(!is_damaged(found, "bä.o".as_bytes()), "{why}");
        }
        assert!(!is_damaged(b"\xc3\xa4....\xff", "ä.....o".as_bytes()), "too far away");
    }

    #[test]
    fn only_a_name_with_a_late_byte_puts_its_hash_in_doubt() {
        assert!(["ц", "bä.o", "äo"].iter().all(|name| hash_in_doubt(name.as_bytes())));
        assert!(!["", "a.o", "ä.obj"].iter().any(|name| hash_in_doubt(name.as_bytes())));
    }

    #[test]
    fn what_lies_behind_the_version_is_not_read() {
        let (bytes, _) = FIXTURES[0];
        let at = bytes.len() - 60;
        let broken = [&bytes[..at], &[0xff; 60]].concat();
        assert_eq!(Shard::read(&broken), Shard::read(bytes));
    }

    #[test]
    fn what_is_merely_unknown_is_passed_over() {
        let bytes = testing::shard(
            |module| block(module, 99, |inner| inner.fixed(0x7777_7777, 32)),
            |names| {
                record(names, 3, &[1]);
                block(names, 99, |_| {});
                entry(names, 0, "a");
            },
        );
        assert_eq!(agreement(&bytes, "a"), Agreement::Same);
    }

    #[test]
    fn what_is_no_shard_is_refused() {
        let module = |content: fn(&mut super::super::bits::Writer)| {
            Shard::read(&file(|file| top(file, MODULE, content)))
        };
        assert_eq!(Shard::read(b""), Err(Refusal::NotBitcode));
        assert_eq!(Shard::read(b"\x7fELF"), Err(Refusal::NotBitcode));
        assert_eq!(Shard::read(b"\xde\xc0\x17\x0b"), Err(Refusal::Wrapped));
        assert_eq!(Shard::read(b"BC\xc0\xde"), Err(Refusal::Missing("MODULE_BLOCK")));
        assert_eq!(module(|_| {}), Err(Refusal::Missing("MODULE_STRTAB_BLOCK")));
        let names = module(|module| block(module, MODULE_STRTAB, |_| {}));
        assert_eq!(names, Err(Refusal::Missing("GLOBALVAL_SUMMARY_BLOCK")));
        let empty = module(|module| block(module, GLOBALVAL_SUMMARY, |_| {}));
        assert_eq!(empty, Err(Refusal::NoVersion));
    }
}
