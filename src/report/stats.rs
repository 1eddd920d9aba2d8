//! `--stats`: what became of each job, for programs. The fields are a contract with scripts (schema 1): new
//! ones may come, none goes.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize, Serializer};

use crate::adapter::Place;
use crate::outcome::Outcome;

/// A whole link.
#[derive(Debug, Serialize)]
#[allow(missing_docs, reason = "the names are those of the file, which README.md explains")]
pub struct Stats {
    pub schema: u32,
    pub bridge: &'static str,
    pub link: String,
    pub started: String,
    pub compiler: String,
    pub adapter: String,
    pub cache: String,
    pub linker_output: String,
    pub jobs: usize,
    pub failed: usize,
    pub places: Places,
    pub retries: usize,
    pub fallbacks: usize,
    pub tool_local: usize,
    pub hosts: BTreeMap<String, usize>,
    pub bytes: Bytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caching: Option<Caching>,
    pub wall_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overrides: Option<String>,
    pub records: Vec<Record>,
}

/// Accepted objects by the place that made them.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "the names are those of the file")]
pub struct Places {
    pub cache: usize,
    pub farm: usize,
    pub local: usize,
}

/// Bytes of inputs and of bundles.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "the names are those of the file")]
pub struct Bytes {
    pub inputs: u64,
    pub distinct: u64,
    pub sent: u64,
    pub pieces: u64,
    pub received: u64,
}

/// What a cache was good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the file")]
pub struct Caching {
    pub hits: usize,
    pub misses: usize,
    pub damaged: usize,
    pub unanswered: usize,
    pub not_cacheable: usize,
    pub stored: usize,
    pub not_stored: usize,
}

/// One job.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the names are those of the file")]
pub struct Record {
    pub module: String,
    pub place: Option<&'static str>,
    pub host: Option<String>,
    pub attempts: usize,
    pub outcome: Outcome,
    pub ms: u64,
    pub outputs: Vec<Output>,
    pub worker: Option<String>,
    pub tries: Vec<Try>,
}

/// One output of a job that was accepted.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the names are those of the file")]
pub struct Output {
    pub path: String,
    pub bytes: u64,
    pub blake3: String,
}

/// One attempt at a job.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the names are those of the file")]
pub struct Try {
    #[serde(serialize_with = "place")]
    pub place: Option<Place>,
    pub host: Option<String>,
    pub worker: Option<String>,
    pub outcome: Outcome,
    pub reason: String,
    pub ms: u64,
}

fn place<S: Serializer>(place: &Option<Place>, serializer: S) -> Result<S::Ok, S::Error> {
    place.map(Place::word).serialize(serializer)
}

/// Milliseconds, as the file has them.
pub fn ms(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap_or(u64::MAX)
}

/// A time in UTC, to the second.
pub fn utc(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}
