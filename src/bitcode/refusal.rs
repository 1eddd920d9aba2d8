//! Why a file is not the bitcode that is known here. Says nothing of what is to be done instead.

use std::fmt;

/// A reason not to believe a file, or not to rewrite it. Positions are bits from the file's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The file does not begin with the magic of raw bitcode.
    NotBitcode,
    /// The file begins with the wrapper magic `0x0B17C0DE`.
    Wrapped,
    /// A length or a record reaches beyond its block or file.
    Overrun {
        /// Where reading stopped.
        bit: u64,
    },
    /// The bitstream breaks a rule of its own.
    Malformed {
        /// What was read, as a clause.
        what: &'static str,
        /// Where reading stopped.
        bit: u64,
    },
    /// A block that must be there is not.
    Missing(&'static str),
    /// A block that must be there once is there again.
    Twice(&'static str),
    /// `GLOBALVAL_SUMMARY_BLOCK` does not begin with `VERSION`.
    NoVersion,
    /// The module holds an absolute offset (`MODULE_CODE_VSTOFFSET`), which a rewrite would break.
    Offset,
    /// `BLOCKINFO` has abbreviations for the block of module names.
    SharedAbbreviations,
    /// The block of module names holds another block.
    ForeignBlock(u64),
    /// The block of module names holds a record of another kind.
    ForeignRecord(u64),
    /// An `ENTRY` is not a module id and bytes.
    Entry,
    /// A `HASH` is not five 32-bit words.
    Hash,
    /// A `HASH` that does not follow an `ENTRY`.
    StrayHash,
    /// The module ids do not ascend.
    Ids,
    /// Another number of new names than the shard has modules.
    Count {
        /// Modules in the shard.
        modules: usize,
        /// New names.
        names: usize,
    },
    /// A new name does not sort after the one before it.
    Unsorted {
        /// The position of the second name.
        position: usize,
    },
    /// A block would have more words than its length word can say.
    TooLong,
    /// The rewritten shard does not read back as what was asked for.
    NotReproduced,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotBitcode => write!(f, "it does not begin with the magic of LLVM bitcode"),
            Refusal::Wrapped => write!(f, "it is bitcode in a wrapper, not raw bitcode"),
            Refusal::Overrun { bit } => write!(f, "it is cut off or broken at bit {bit}"),
            Refusal::Malformed { what, bit } => write!(f, "{what} (at bit {bit})"),
            Refusal::Missing(block) => write!(f, "it has no {block}"),
            Refusal::Twice(block) => write!(f, "it has more than one {block}"),
            Refusal::NoVersion => write!(f, "its summary does not begin with a version"),
            Refusal::Offset => write!(f, "its module holds an absolute offset"),
            Refusal::SharedAbbreviations => {
                write!(f, "BLOCKINFO has abbreviations for the block of module names")
            }
            Refusal::ForeignBlock(id) => write!(f, "its module names hold a block of id {id}"),
            Refusal::ForeignRecord(code) => {
                write!(f, "its module names hold a record of code {code}")
            }
            Refusal::Entry => write!(f, "a module's ENTRY is not an id and a name"),
            Refusal::Hash => write!(f, "a module's HASH is not five 32-bit words"),
            Refusal::StrayHash => write!(f, "a HASH does not follow a module's ENTRY"),
            Refusal::Ids => write!(f, "its module ids do not ascend"),
            Refusal::Count { modules, names } => {
                write!(f, "it has {modules} modules, but {names} new names were given")
            }
            Refusal::Unsorted { position } => {
                write!(f, "new name {position} does not sort after the one before it")
            }
            Refusal::TooLong => write!(f, "a block would outgrow its length word"),
            Refusal::NotReproduced => {
                write!(f, "the rewritten shard does not read back as what was asked for")
            }
        }
    }
}

impl std::error::Error for Refusal {}
