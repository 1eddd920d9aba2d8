//! Just enough of LLVM's bitstream to read a ThinLTO index shard and to rename the modules in it.
//!
//! A shard names each module that its job reads; clang takes no other spelling of the path. So a job
//! can move to another folder only if its shard is rewritten. All names lie in one block, the summary
//! refers to modules by number, and only the sort order of names reaches the object.
//! Knows nothing of job files, of LLVM IR or of what the summary says.

mod bits;
mod block;
mod refusal;
mod rename;
mod shard;

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
