//! Bundles that go round, and bundles that were made to do harm.

use crate::jobfile::{Job, Text};

/// A job as LLD 22 writes it.
pub(super) fn job(primary: &str, imports: &[&str]) -> Job {
    let text = |text: &str| Text::from(text);
    let object = format!("{}.native.o", primary.trim_end_matches(".o"));
    let index = format!("{object}.thinlto.bc");
    let args = ["-c", "-O2", primary, &format!("-fthinlto-index={index}"), "-o", &object];
    Job {
        args: args.map(text).to_vec(),
        primary: text(primary),
        index: text(&index),
        imports: imports.iter().copied().map(text).collect(),
        other_inputs: vec![],
        object: text(&object),
        other_outputs: vec![],
    }
}
