//! The shape of a manifest as JSON: keys, types and words. Knows nothing of what a manifest may say, which
//! is checked after it.

use serde::Deserialize;

use super::strict::{Members, Object, Texts};
use super::{Chroot, Delivery, HandOver, HostList, Meaning, Place, Scheduler, Shipping, TaskFile};

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
    pub(super) tool: Option<Texts>,
    pub(super) command: Vec<String>,
    #[serde(default)]
    pub(super) env: Object<RawEnv>,
    pub(super) request: Option<Delivery>,
    pub(super) environment: Option<Chroot>,
    pub(super) batch: Option<Object<RawBatch>>,
    pub(super) hosts: Option<HostList>,
    pub(super) scheduler: Option<Scheduler>,
    pub(super) nice: Option<u8>,
    pub(super) tripwire: Option<Object<RawTripwire>>,
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
    pub(super) only: Option<Vec<String>>,
    #[serde(default)]
    pub(super) set: Members,
    #[serde(default)]
    pub(super) unset: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawBatch {
    pub(super) task_file: TaskFile,
    #[serde(default)]
    pub(super) never_here: Vec<String>,
    pub(super) inside: Option<String>,
    pub(super) all_here: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTripwire {
    pub(super) program: String,
    pub(super) code: u8,
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A manifest whose shape is right, with some keys replaced; `null` removes one.
    fn manifest(keys: Value) -> Value {
        let mut manifest = json!({
            "schema": 1, "name": "a", "summary": "b", "place": "farm", "hand_over": "each",
            "shipping": "direct", "command": ["c"],
        });
        let all = manifest.as_object_mut().unwrap();
        all.extend(keys.as_object().unwrap().clone());
        all.retain(|_, value| !value.is_null());
        manifest
    }

    #[track_caller]
    fn error(text: &str) -> String {
        read(text).err().unwrap()
    }

    /// What is said of the manifest with `keys` replaced, without serde's line and column.
    #[track_caller]
    fn problem(keys: Value) -> String {
        let error = error(&manifest(keys).to_string());
        error.split(" at line ").next().unwrap().to_owned()
    }

    #[test]
    fn a_manifest_without_the_optional_keys_is_read() {
        let raw = read(&manifest(json!({})).to_string()).ok().unwrap();
        assert_eq!(raw.command, ["c"]);
    }

    #[test]
    fn an_unknown_key_is_an_error_everywhere() {
        let cases = [
            (
                json!({"extends": "icecc"}),
                "extends: unknown field `extends`, expected one of `schema`, ",
            ),
            (
                json!({"env": {"add": {}}}),
                "env.add: unknown field `add`, expected one of `only`, `set`, `unset`",
            ),
            (
                json!({"exit": [{"codes": "1", "means": "busy", "retry": 1}]}),
                "exit[0].retry: unknown field `retry`, expected one of `codes`, `means`, `say`",
            ),
            (
                json!({"probes": [{"cmd": []}]}),
                "probes[0].cmd: unknown field `cmd`, expected one of `command`, `expect`, `help`",
            ),
        ];
        for (keys, expected) in cases {
            let problem = problem(keys);
            assert!(problem.starts_with(expected), "{problem}");
        }
    }

    #[test]
    fn a_shape_error_has_the_path_of_its_place() {
        let cases = [
            (
                json!({"command": "clang"}),
                "command: invalid type: string \"clang\", expected a sequence",
            ),
            (
                json!({"command": ["a", 2]}),
                "command[1]: invalid type: integer `2`, expected a string",
            ),
            (
                json!({"env": {"set": {"A": 1}}}),
                "env.set.A: invalid type: integer `1`, expected a string",
            ),
            (
                json!({"exit": [{"codes": 75, "means": "busy"}]}),
                "exit[0].codes: invalid type: integer `75`, expected a string",
            ),
            (json!({"exit": [{"codes": "75"}]}), "exit[0]: missing field `means`"),
            (json!({"slots": -1}), "slots: invalid value: integer `-1`, expected u32"),
            (json!({"name": null}), "missing field `name`"),
            (json!({"schema": null}), "missing field `schema`"),
            (json!({"schema": "1"}), "schema: invalid type: string \"1\", expected u64"),
        ];
        for (keys, expected) in cases {
            assert_eq!(problem(keys), expected);
        }
    }

    #[test]
    fn a_word_that_is_not_known_is_answered_with_those_that_are() {
        assert_eq!(
            problem(json!({"exit": [{"codes": "1", "means": "buzy"}]})),
            "exit[0].means: unknown word \"buzy\"; known: \"compiler error\", \"busy\", \
             \"unreachable\", \"no compiler\", \"no hosts\""
        );
        assert_eq!(
            problem(json!({"place": "moon"})),
            "place: unknown word \"moon\"; known: \"local\", \"farm\""
        );
        assert_eq!(
            problem(json!({"hand_over": "mail"})),
            "hand_over: unknown word \"mail\"; known: \"each\", \"batch\", \"wrap\""
        );
        assert_eq!(
            problem(json!({"shipping": "pigeon"})),
            "shipping: unknown word \"pigeon\"; known: \"direct\", \"bundle\", \"declared\""
        );
    }

    #[test]
    fn another_schema_is_named_before_its_keys_are_judged() {
        assert_eq!(
            problem(json!({"schema": 2, "extends": "icecc"})),
            "schema: 2 is not known here; this version reads 1"
        );
    }

    #[test]
    fn an_array_is_not_taken_for_an_object() {
        assert_eq!(
            problem(json!({"exit": [["75", "busy", null]]})),
            "exit[0]: invalid type: sequence, expected an object"
        );
        assert_eq!(problem(json!({"env": []})), "env: invalid type: sequence, expected an object");
        assert!(error("[1]").contains("invalid type: sequence, expected an object"));
    }

    #[test]
    fn a_key_written_twice_is_an_error() {
        let error = error(r#"{"schema": 1, "name": "a", "name": "b"}"#);
        assert!(error.starts_with("duplicate field `name` at line 1"), "{error}");
    }

    #[test]
    fn text_that_is_not_json_is_an_error_with_its_line() {
        assert_eq!(error(""), "EOF while parsing a value at line 1 column 0");
        assert_eq!(error("{\n,"), "key must be a string at line 2 column 1");
        let trailing = error(&format!("{} {{}}", manifest(json!({}))));
        assert!(trailing.starts_with("trailing characters at line 1"), "{trailing}");
        let deep = error(&"[".repeat(100_000));
        assert!(deep.starts_with("invalid type: sequence, expected an object"), "{deep}");
        let deep = error(&format!(r#"{{"name": {}"#, "[".repeat(100_000)));
        assert!(deep.starts_with("name: invalid type: sequence, expected a string"), "{deep}");
    }
}
