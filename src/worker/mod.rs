//! The far half: takes a request, runs the compiler that this host's owner allowed, locked in, and gives a
//! response back. It trusts nothing that a request says, and knows nothing of links.

pub mod call;
pub mod log;
pub mod memory;
pub mod sandbox;
pub mod scratch;
pub mod settings;
