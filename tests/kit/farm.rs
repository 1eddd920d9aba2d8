//! A farm of one host on this machine: a script carries bundles to a worker in another folder, which is another
//! user where the tests run as root. It does not know what is linked, nor what is wrong with the farm.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};

use serde_json::{Value, json};

use super::{Folder, Output, bridge_path, missing, tool};

/// The user of the worker: nobody, as everywhere.
const NOBODY: u32 = 65_534;

/// A manifest, the script that it names, and the worker's settings.
pub(crate) struct Farm {
    pub(crate) folder: Folder,
}

impl Farm {
    /// All goes well.
    pub(crate) fn new() -> Farm {
        Farm::with(r#"work "$1" "$2""#)
    }

    /// The script ends with `body`: `$1` is the request, `$2` where the response belongs, `$HOST` a folder that
    /// stays, and `work REQUEST RESPONSE` does what a good farm does.
    pub(crate) fn with(body: &str) -> Farm {
        let folder = Folder::new();
        fs::set_permissions(folder.path(""), Permissions::from_mode(0o755)).unwrap();
        // The build's own folder may be closed to others.
        fs::copy(bridge_path(), folder.path("dtlto-worker")).unwrap();
        for name in ["scratch", "spool"] {
            fs::set_permissions(folder.mkdir(name), Permissions::from_mode(0o777)).unwrap();
        }
        let farm = Farm { folder };
        farm.allow(&[&tool("clang-22").display().to_string()]);
        farm.slots(4);
        let user = match rustix::process::geteuid().is_root() && missing(&["setpriv"]).is_none() {
            true => format!("setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups"),
            false => String::new(),
        };
        let host = farm.folder.path("").display().to_string();
        let script = format!(
            r#"HOST='{host}'
work() (
    here=$(mktemp -d "$HOST/spool/XXXXXX")
    cp "$1" "$here/in"; : >"$here/out"; chmod 755 "$here"; chmod 666 "$here/out"
    cd / && {user} env -i DTLTO_WORKER_CONFIG="$HOST/worker.json" "$HOST/dtlto-worker" "$here/in" "$here/out" || exit 201
    cat "$here/out" >"$2"; rm -r "$here"
)
{body}"#
        );
        farm.folder.script("carry", &script);
        farm
    }

    /// The compilers that the worker's owner allows.
    pub(crate) fn allow(&self, compilers: &[&str]) {
        let scratch = self.folder.path("scratch");
        let settings = json!({"compilers": compilers, "scratch": scratch});
        let settings = self.folder.write("worker.json", settings.to_string());
        if rustix::process::geteuid().is_root() {
            chown(settings, Some(NOBODY), None).unwrap();
        }
    }

    /// How many jobs it gets at once.
    pub(crate) fn slots(&self, slots: u32) {
        let manifest = json!({
            "schema": 1, "name": "farm", "summary": "One host.", "place": "farm",
            "hand_over": "each", "shipping": "bundle", "tool": self.folder.path("carry"),
            "command": ["{tool}", "{request}", "{response}"], "slots": slots,
            "exit": [{"codes": "201", "means": "busy", "say": "come again"}],
        });
        self.folder.write("farm.json", manifest.to_string());
    }

    /// What makes the bridge use it.
    pub(crate) fn adapter(&self) -> String {
        format!("--adapter={}", self.folder.path("farm.json").display())
    }

    /// What turns a link of clang into one through this farm, and nowhere else.
    pub(crate) fn through(&self) -> Vec<String> {
        let stats = format!("--stats={}", self.folder.path("stats.json").display());
        let options = [&*self.adapter(), "--fallback=never", "--retries=0", &stats];
        let given = options.iter().map(|option| format!("-Xthinlto-distributor={option}"));
        [format!("-fthinlto-distributor={}", bridge_path())].into_iter().chain(given).collect()
    }

    /// The statistics of the last link that went [through](Farm::through) it.
    pub(crate) fn stats(&self) -> Value {
        serde_json::from_slice(&self.folder.read("stats.json")).unwrap()
    }

    /// All `jobs` of that link were made by the worker, and nothing of theirs is left there.
    #[track_caller]
    pub(crate) fn assert_made(&self, jobs: usize, output: &Output) {
        let stats = self.stats();
        assert_eq!(stats["places"]["farm"], jobs, "{stats:#}{output}");
        assert_eq!(stats["hosts"].as_object().map(serde_json::Map::len), Some(1), "{stats:#}");
        let left = self.folder.list("scratch").into_iter().chain(self.folder.list("spool"));
        let left: Vec<_> =
            left.filter(|name| name.contains("job-") || name.ends_with('/')).collect();
        assert_eq!(left, [""; 0]);
    }
}
