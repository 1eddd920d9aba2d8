//! The library behind the `dtlto-bridge` binary. DESIGN.md has a sentence for each file.

pub mod cli;
pub mod exit;
pub mod outcome;
pub mod process;
