//! The library behind the `dtlto-bridge` binary. DESIGN.md has a sentence for each file.

pub mod adapter;
pub mod exit;
