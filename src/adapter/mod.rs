//! Adapters: JSON manifests that say in which words a tool is talked to, read strictly and checked whole
//! at load. This module knows neither job files nor processes: it turns values into an argv and exit
//! codes into meanings; others find the tool, start it and decide what follows.

mod check;
mod lookup;
mod manifest;
#[cfg(test)]
mod readme_test;
mod shape;
mod strict;
mod template;
mod words;

pub use lookup::{Entry, available, load};
pub use manifest::{
    Batch, Chroot, Delivery, Env, ExitRule, HandOver, HostList, Manifest, Meaning, Place, Probe,
    Scheduler, Shipping, Source, TaskFile, Tool, Tripwire,
};
pub use template::{Argv, List, Scalar, Template, Values};
