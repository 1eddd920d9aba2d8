//! Gives the modules of an index shard new names.
//! Writes the block of module names anew; all else stays verbatim but for two length words.
//! Refuses whatever could make the result mean something else. Does not choose names.

use super::bits::Writer;
use super::shard::{ENTRY, HASH, Table};
use super::{BLOCKINFO, Block, BlockInfo, Header, Item, MODULE, MODULE_STRTAB, Module, Refusal};

/// `MODULE_CODE_VSTOFFSET`: an absolute position in the file.
const VSTOFFSET: u64 = 13;
/// The width of abbreviation ids in the block as LLVM writes it, wide enough for unabbreviated records.
const UNABBREVIATED: u64 = 3;

/// What becomes of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'n> {
    /// The new name.
    pub name: &'n [u8],
    /// The new hash, for a module that has one; `None` keeps the old one.
    pub hash: Option<[u32; 5]>,
}

/// New bytes of a shard in which the module at position `k` is called `new[k]`.
///
/// New names must sort as the old ones do, strictly ascending by bytes: then clang makes the same
/// object.
///
/// # Errors
/// If the shard is not of the form that is known in every respect, or the names do not fit it.
pub fn rename(bytes: &[u8], new: &[&[u8]]) -> Result<Vec<u8>, Refusal> {
    let changes: Vec<_> = new.iter().map(|name| Change { name, hash: None }).collect();
    rewrite(bytes, &changes)
}

/// Like [`rename`], but may give modules new hashes too: true ones for those that LLD damaged, or ones
/// that do not change with every edit of the module.
///
/// # Errors
/// As for [`rename`].
pub fn rewrite(bytes: &[u8], changes: &[Change<'_>]) -> Result<Vec<u8>, Refusal> {
    let layout = Layout::find(bytes)?;
    let modules = changed(layout.modules, changes)?;
    let body = body(&modules, layout.table.width);

    let old = layout.table.body.clone();
    let (before, after) = (&bytes[..old.start], &bytes[old.end..]);
    let mut result = Vec::with_capacity(before.len() + body.len() + after.len());
    result.extend_from_slice(before);
    result.extend_from_slice(&body);
    result.extend_from_slice(after);
    for header in [&layout.module, &layout.table] {
        let length = header.body.len() - old.len() + body.len();
        let words = u32::try_from(length / 4).map_err(|_| Refusal::TooLong)?;
        result[header.length_at..][..4].copy_from_slice(&words.to_le_bytes());
    }
    confirm(bytes, &result, &layout.module, &layout.table, &modules)?;
    Ok(result)
}

/// A shard with all that a rewrite must know.
struct Layout {
    module: Header,
    table: Header,
    modules: Vec<Module>,
}

impl Layout {
    /// Walks the whole top level and the whole module, so that no second one is overlooked.
    fn find(bytes: &[u8]) -> Result<Self, Refusal> {
        let mut info = BlockInfo::default();
        let mut module = None;
        let mut file = Block::file(bytes)?;
        while let Some(Item::Block(header)) = file.next_item()? {
            match header.id {
                BLOCKINFO => info.read(bytes, &header)?,
                MODULE if module.is_some() => return Err(Refusal::Twice("MODULE_BLOCK")),
                MODULE => {
                    let table = find_table(bytes, &header, &mut info)?;
                    module = Some((header, table));
                }
                _ => {}
            }
        }
        let (module, table) = module.ok_or(Refusal::Missing("MODULE_BLOCK"))?;
        if info.knows(MODULE_STRTAB) {
            return Err(Refusal::SharedAbbreviations);
        }
        let Table { modules, foreign } = Table::read(bytes, &table, &info)?;
        if let Some(foreign) = foreign {
            return Err(foreign);
        }
        if !modules.is_sorted_by(|one, next| one.id < next.id) {
            return Err(Refusal::Ids);
        }
        Ok(Layout { module, table, modules })
    }
}

fn find_table(bytes: &[u8], module: &Header, info: &mut BlockInfo) -> Result<Header, Refusal> {
    let mut table = None;
    let mut block = Block::open(bytes, module, info)?;
    while let Some(item) = block.next_item()? {
        match item {
            Item::Block(header) if header.id == BLOCKINFO => info.read(bytes, &header)?,
            Item::Block(header) if header.id == MODULE_STRTAB && table.is_some() => {
                return Err(Refusal::Twice("MODULE_STRTAB_BLOCK"));
            }
            Item::Block(header) if header.id == MODULE_STRTAB => table = Some(header),
            Item::Record(record) if record.code == VSTOFFSET => return Err(Refusal::Offset),
            _ => {}
        }
    }
    table.ok_or(Refusal::Missing("MODULE_STRTAB_BLOCK"))
}

fn changed(mut modules: Vec<Module>, changes: &[Change<'_>]) -> Result<Vec<Module>, Refusal> {
    if modules.len() != changes.len() {
        return Err(Refusal::Count { modules: modules.len(), names: changes.len() });
    }
    if let Some(before) = changes.windows(2).position(|pair| pair[0].name >= pair[1].name) {
        return Err(Refusal::Unsorted { position: before + 1 });
    }
    for (module, change) in modules.iter_mut().zip(changes) {
        module.name = change.name.to_vec();
        module.hash = module.hash.map(|old| change.hash.unwrap_or(old));
    }
    Ok(modules)
}

/// The content of `MODULE_STRTAB_BLOCK`, without abbreviations.
fn body(modules: &[Module], width: u32) -> Vec<u8> {
    let mut writer = Writer::default();
    let mut record = |code, operands: &mut dyn ExactSizeIterator<Item = u64>| {
        writer.fixed(UNABBREVIATED, width);
        writer.vbr6(code);
        writer.vbr6(operands.len() as u64);
        operands.for_each(|operand| writer.vbr6(operand));
    };
    for Module { id, name, hash } in modules {
        let name = name.iter().map(|&byte| u64::from(byte));
        let operands: Vec<u64> = std::iter::once(*id).chain(name).collect();
        record(ENTRY, &mut operands.into_iter());
        if let Some(hash) = hash {
            record(HASH, &mut hash.iter().map(|&word| u64::from(word)));
        }
    }
    writer.fixed(0, width);
    writer.finish()
}

/// Reads the result again: the modules as wanted, the rest as it was.
fn confirm(
    old: &[u8],
    new: &[u8],
    module: &Header,
    table: &Header,
    modules: &[Module],
) -> Result<(), Refusal> {
    let layout = Layout::find(new)?;
    let blank = |part: &[u8]| {
        let mut part = part.to_vec();
        part[module.length_at..][..4].fill(0);
        part[table.length_at..][..4].fill(0);
        part
    };
    let same_head = blank(&old[..table.body.start]) == blank(&new[..layout.table.body.start]);
    let same_tail = old[table.body.end..] == new[layout.table.body.end..];
    if layout.modules != modules || !same_head || !same_tail {
        return Err(Refusal::NotReproduced);
    }
    Ok(())
}
