//! The hosts of a farm, and which one gets the next job. It knows of distcc no more than its list of hosts
//! and what its client prints, and nothing of bundles.

pub mod alive;
pub mod list;
pub mod locks;
pub mod memory;
pub mod placement;
pub mod probe;
