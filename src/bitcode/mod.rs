//! Just enough of LLVM's bitstream to read a ThinLTO index shard and to rename the modules in it.
//!
//! A shard names each module that its job reads; clang takes no other spelling of the path. So a job
//! can move to another folder only if its shard is rewritten. All names lie in one block, the summary
//! refers to modules by number, and only the sort order of names reaches the object.
//! Knows nothing of job files, of LLVM IR or of what the summary says.

mod abbreviation;
mod bits;
mod block;
mod refusal;
mod rename;
mod shard;
#[cfg(test)]
mod testing;

pub use block::{Block, BlockInfo, Header, Item, Record};
pub use refusal::Refusal;
pub use rename::{Change, rename, rewrite};
pub use shard::{Agreement, Module, Shard, hash_in_doubt, module_hash, names_agree};

/// `BLOCKINFO`: abbreviations that other blocks begin with.
pub const BLOCKINFO: u64 = 0;
/// `MODULE_BLOCK`: a module, or in a shard what stands in its place.
pub const MODULE: u64 = 8;
/// `MODULE_STRTAB_BLOCK`: the names and hashes of a shard's modules.
pub const MODULE_STRTAB: u64 = 19;
/// `GLOBALVAL_SUMMARY_BLOCK`: the ThinLTO summary.
pub const GLOBALVAL_SUMMARY: u64 = 20;

#[cfg(test)]
mod tests {
    use super::testing::{BROKEN, FIXTURES};
    use super::*;
    use proptest::prelude::*;

    /// Runs everything on bytes of which nothing is known; returns only if nothing panics or hangs.
    fn try_all(bytes: &[u8]) {
        let _ = module_hash(bytes);
        let shard = Shard::read(bytes);
        let count = shard.as_ref().map_or(3, |shard| shard.modules.len());
        let new: Vec<_> = (0..count).map(|k| format!("m{k:09}.o")).collect();
        let new: Vec<_> = new.iter().map(|name| name.as_bytes()).collect();
        if let (Ok(shard), Ok(renamed)) = (shard, rename(bytes, &new)) {
            let again = Shard::read(&renamed).unwrap();
            assert_eq!((shard.version, count), (again.version, again.modules.len()));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_behind_the_magic_are_harmless(tail in prop::collection::vec(any::<u8>(), 0..400)) {
            try_all(&tail);
            try_all(&[b"BC\xC0\xDE".as_slice(), &tail].concat());
        }

        #[test]
        fn flipped_bits_are_harmless(
            which in 0..FIXTURES.len(),
            flips in prop::collection::vec(any::<prop::sample::Index>(), 1..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = FIXTURES[which].0.to_vec();
            for flip in flips {
                let bit = flip.index(bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            try_all(&bytes);
            try_all(&bytes[..cut.index(bytes.len())]);
        }
    }

    #[test]
    fn a_shard_cut_inside_a_block_is_not_rewritten() {
        for (bytes, names) in FIXTURES.into_iter().chain([BROKEN]) {
            let names: Vec<_> = names.lines().map(str::as_bytes).collect();
            let mut file = Block::file(bytes).unwrap();
            let Ok(Some(Item::Block(module))) = file.next_item() else { panic!("no block") };
            let end_of_module = module.body.end;
            for length in (0..end_of_module).chain(end_of_module + 1..bytes.len()) {
                try_all(&bytes[..length]);
                assert!(rename(&bytes[..length], &names).is_err(), "{length}");
            }
        }
    }
}
