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
/// object. (Numbers in them need leading zeros: `m9999.o` sorts behind `m10000.o`.) Hashes stay as they
/// are, so where [`hash_in_doubt`](super::hash_in_doubt) use [`rewrite`].
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

#[cfg(test)]
mod tests {
    use super::super::testing::{self, BROKEN, FIXTURES, block, define, entry, file, record, top};
    use super::super::{GLOBALVAL_SUMMARY, Shard};
    use super::*;

    fn module(id: u64, name: &str, hash: Option<[u32; 5]>) -> Module {
        Module { id, name: name.into(), hash }
    }

    fn new_names(count: usize, name: impl Fn(usize) -> Vec<u8>, bytes: &[u8]) -> Shard {
        let names: Vec<_> = (0..count).map(name).collect();
        let names: Vec<_> = names.iter().map(|name| &name[..]).collect();
        let renamed = rename(bytes, &names).unwrap();
        let shard = Shard::read(&renamed).unwrap();
        assert!(shard.modules.iter().map(|module| &module.name[..]).eq(names));
        shard
    }

    #[test]
    fn one_entry_is_57_bits_and_the_end_of_the_block() {
        let body = body(&[module(0, "a.o", None)], 3);
        assert_eq!(body, [0x0b, 0x08, 0x20, 0x1c, 0xdc, 0xe0, 0x1d, 0x00]);
    }

    #[test]
    fn real_shards_take_short_long_and_odd_names() {
        for (bytes, _) in FIXTURES {
            let old = Shard::read(bytes).unwrap();
            let count = old.modules.len();
            let short = |k: usize| vec![b'a' + k as u8];
            let long = |k: usize| format!("/{k:03}/{}/x.o", "deep ".repeat(1000)).into_bytes();
            let odd = |k: usize| vec![0, 0x7f, 0x80, 0xff, k as u8, b'\n'];
            for name in [&short as &dyn Fn(usize) -> Vec<u8>, &long, &odd] {
                let new = new_names(count, name, bytes);
                assert_eq!(new.version, old.version);
                for (old, new) in old.modules.iter().zip(&new.modules) {
                    assert_eq!((old.id, old.hash), (new.id, new.hash));
                }
            }
        }
    }

    #[test]
    fn all_but_the_names_and_two_lengths_stays_as_it_was() {
        let (bytes, _) = FIXTURES[0];
        let Layout { module, table, .. } = Layout::find(bytes).unwrap();
        let renamed = rename(bytes, &[b"a-longer-name-than-before", b"b", b"c"]).unwrap();
        let mut head = renamed[..table.body.start].to_vec();
        for at in [module.length_at, table.length_at] {
            assert_ne!(head[at..at + 4], bytes[at..at + 4]);
            head[at..at + 4].copy_from_slice(&bytes[at..at + 4]);
        }
        assert_eq!(head, bytes[..table.body.start]);
        assert!(renamed.ends_with(&bytes[table.body.end..]));
    }

    #[test]
    fn ten_thousand_and_one_modules_are_renamed() {
        let modules: Vec<_> = (0..10_001)
            .map(|k| {
                module(k, &format!("/build/objects/{k:05}.o"), Some([k as u32, 1, 2, 3, u32::MAX]))
            })
            .collect();
        let bytes = testing::shard(|_| {}, |names| testing::modules(names, &modules));
        assert_eq!(Shard::read(&bytes).unwrap(), Shard { version: 12, modules: modules.clone() });
        let renamed = new_names(10_001, |k| format!("m{k:05}").into_bytes(), &bytes);
        assert!(renamed.modules.iter().zip(&modules).all(|(new, old)| new.hash == old.hash));
    }

    #[test]
    fn ids_with_gaps_are_kept() {
        let bytes = testing::shard(
            |_| {},
            |names| {
                testing::modules(names, &[module(3, "a", None), module(u64::MAX, "b", None)]);
            },
        );
        let shard = new_names(2, |k| vec![k as u8], &bytes);
        assert_eq!([3, u64::MAX], [shard.modules[0].id, shard.modules[1].id]);
    }

    #[test]
    fn a_new_hash_replaces_an_old_one_but_is_not_given_to_a_module_without() {
        let bytes = testing::shard(
            |_| {},
            |names| {
                testing::modules(names, &[module(0, "a", Some([1; 5])), module(1, "b", None)]);
            },
        );
        let change = |name| Change { name, hash: Some([7; 5]) };
        let new = Shard::read(&rewrite(&bytes, &[change(b"c"), change(b"d")]).unwrap()).unwrap();
        assert_eq!(new.modules, [module(0, "c", Some([7; 5])), module(1, "d", None)]);
    }

    #[test]
    fn names_must_be_as_many_as_modules_and_in_order() {
        let (bytes, _) = FIXTURES[0];
        assert_eq!(rename(bytes, &[b"a", b"b"]), Err(Refusal::Count { modules: 3, names: 2 }));
        for names in [[b"a", b"c", b"b"], [b"a", b"b", b"b"]] {
            let names = names.map(|name| &name[..]);
            assert_eq!(rename(bytes, &names), Err(Refusal::Unsorted { position: 2 }));
        }
    }

    #[test]
    fn a_block_broken_by_a_name_is_refused() {
        assert!(rename(BROKEN.0, &[b"a", b"b", b"c"]).is_err());
    }

    #[test]
    fn unknown_blocks_and_records_outside_the_names_pass() {
        let before = |module: &mut Writer| {
            record(module, 99, &[1, 2, 3]);
            define(module, &[('l', 77), ('v', 6), ('b', 0)]);
            block(module, 99, |inner| inner.fixed(0x5555_5555, 32));
            block(module, BLOCKINFO, |info| {
                record(info, 1, &[12]);
                define(info, &[('f', 3), ('a', 0), ('c', 0)]);
                record(info, 2, &[65]);
            });
        };
        let bytes = testing::shard(before, |names| entry(names, 0, "a"));
        assert_eq!(new_names(1, |_| b"b".to_vec(), &bytes).modules.len(), 1);
    }

    fn refusal_of(before: impl FnOnce(&mut Writer), names: impl FnOnce(&mut Writer)) -> Refusal {
        rename(&testing::shard(before, names), &[b"new"]).unwrap_err()
    }

    #[test]
    fn what_a_rewrite_could_break_is_refused() {
        let offset = |module: &mut Writer| record(module, VSTOFFSET, &[100]);
        assert_eq!(refusal_of(offset, |names| entry(names, 0, "a")), Refusal::Offset);
        let shared = |module: &mut Writer| {
            block(module, BLOCKINFO, |info| {
                record(info, 1, &[MODULE_STRTAB]);
                define(info, &[('l', 1), ('a', 0), ('f', 8)]);
            });
        };
        let refusal = refusal_of(shared, |names| entry(names, 0, "a"));
        assert_eq!(refusal, Refusal::SharedAbbreviations);
        let twice = |module: &mut Writer| block(module, MODULE_STRTAB, |_| {});
        let refusal = refusal_of(twice, |names| entry(names, 0, "a"));
        assert_eq!(refusal, Refusal::Twice("MODULE_STRTAB_BLOCK"));
    }

    #[test]
    fn a_second_module_is_refused_even_behind_all_else() {
        let (bytes, _) = FIXTURES[0];
        let again = [bytes, &file(|file| top(file, MODULE, |_| {}))[4..]].concat();
        assert!(Shard::read(&again).is_ok());
        let names: [&[u8]; 3] = [b"a", b"b", b"c"];
        assert_eq!(rename(&again, &names), Err(Refusal::Twice("MODULE_BLOCK")));
    }

    #[test]
    fn names_of_an_unknown_form_are_refused() {
        let of = |names: &dyn Fn(&mut Writer)| refusal_of(|_| {}, names);
        let hash = [0; 5];
        assert_eq!(of(&|names| record(names, 2, &hash)), Refusal::StrayHash);
        let twice = |names: &mut Writer| {
            entry(names, 0, "a");
            record(names, 2, &hash);
            record(names, 2, &hash);
        };
        assert_eq!(of(&twice), Refusal::StrayHash);
        let short = |names: &mut Writer| {
            entry(names, 0, "a");
            record(names, 2, &hash[..4]);
        };
        assert_eq!(of(&short), Refusal::Hash);
        let wide = |names: &mut Writer| {
            entry(names, 0, "a");
            record(names, 2, &[0, 0, 0, 0, 1 << 32]);
        };
        assert_eq!(of(&wide), Refusal::Hash);
        assert_eq!(of(&|names| record(names, 3, &[])), Refusal::ForeignRecord(3));
        assert_eq!(of(&|names| block(names, 30, |_| {})), Refusal::ForeignBlock(30));
        assert_eq!(of(&|names| record(names, 1, &[])), Refusal::Entry);
        assert_eq!(of(&|names| record(names, 1, &[0, 256])), Refusal::Entry);
        let same_id = |names: &mut Writer| {
            entry(names, 1, "a");
            entry(names, 1, "b");
        };
        assert_eq!(of(&same_id), Refusal::Ids);
        assert!(matches!(
            of(&|names| define(names, &[('l', 1), ('?', 0)])),
            Refusal::Malformed { .. }
        ));
    }

    #[test]
    fn a_shard_without_names_is_refused() {
        let bytes =
            file(|file| top(file, MODULE, |module| block(module, GLOBALVAL_SUMMARY, |_| {})));
        assert_eq!(rename(&bytes, &[]), Err(Refusal::Missing("MODULE_STRTAB_BLOCK")));
    }
}
