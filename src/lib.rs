//! The library behind the `dtlto-bridge` binary. DESIGN.md has a sentence for each file. A module uses only
//! those above it in this list; `tests/tidy.rs` holds it.

pub mod os;
pub mod exit;
pub mod cli;
pub mod overrides;
pub mod jobfile;
pub mod bitcode;
pub mod quote;
pub mod adapter;
pub mod outcome;
pub mod process;
pub mod hosts;
pub mod icecream;
pub mod toolchain;
pub mod policy;
pub mod bundle;
pub mod environment;
pub mod parcel;
pub mod taskfile;
pub mod plan;
pub mod inputs;
pub mod collect;
pub mod report;
pub mod cache;
pub mod attempt;
pub mod fleet;
pub mod run;
pub mod save;
pub mod link;
pub mod doctor;
#[cfg(unix)]
pub mod worker;
