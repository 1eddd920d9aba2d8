//! The table of contents: one line a phase.

fn main() {}
