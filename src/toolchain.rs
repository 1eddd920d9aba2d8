//! Stands in until the toolchain is there: only what bundles carry of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What decides about the bytes of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The first line of `clang --version`.
    pub version: String,
    /// What `code` is made of.
    pub parts: BTreeMap<String, String>,
    /// A digest of the parts.
    pub code: String,
    /// A digest of the code and all other libraries.
    pub full: String,
}
