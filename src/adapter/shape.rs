//! The shape of a manifest as JSON: keys, types and words. Knows nothing of what a manifest may say, which
//! is checked after it.

use serde::Deserialize;

use super::strict::{Members, Object};
use super::{HandOver, Meaning, Place, Shipping};

/// The version of the format that this program reads.
const SCHEMA: u64 = 1;

#[derive(Deserialize)]
struct Version {
    schema: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    #[serde(rename = "schema")]
    _schema: u64,
    pub(super) name: String,
    pub(super) summary: String,
    pub(super) homepage: Option<String>,
    pub(super) place: Place,
    pub(super) hand_over: HandOver,
    pub(super) shipping: Shipping,
    pub(super) tool: Option<String>,
    pub(super) command: Vec<String>,
    #[serde(default)]
    pub(super) env: Object<RawEnv>,
    pub(super) slots: Option<u32>,
    #[serde(default)]
    pub(super) exit: Vec<Object<RawExit>>,
    #[serde(default)]
    pub(super) probes: Vec<Object<RawProbe>>,
    #[serde(default)]
    pub(super) notes: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawEnv {
    #[serde(default)]
    pub(super) set: Members,
    #[serde(default)]
    pub(super) unset: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawExit {
    pub(super) codes: String,
    pub(super) means: Meaning,
    pub(super) say: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawProbe {
    pub(super) command: Vec<String>,
    pub(super) expect: Option<String>,
    pub(super) help: String,
}

/// Reads `text`, or tells the first thing that keeps it from being read, with its path.
pub(super) fn read(text: &str) -> Result<Raw, String> {
    // Before all else: what another schema calls a key, this one may call an error.
    if let Ok(Version { schema }) = serde_json::from_str(text)
        && schema != SCHEMA
    {
        return Err(format!("schema: {schema} is not known here; this version reads {SCHEMA}"));
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let Object(raw) = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let what = error.inner();
        // "." is the whole manifest, "?" a place that cannot be told.
        match path.trim_end_matches(['.', '?']) {
            "" => what.to_string(),
            at => format!("{at}: {what}"),
        }
    })?;
    json.end().map_err(|error| error.to_string())?;
    Ok(raw)
}
