//! A machine with Incredibuild on it, which is the emulator of `tests/incredibuild/`. It does not know what is linked.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::Value;

use super::{Folder, Run, bridge_path, target_dir};

/// The emulators' folder of state, and the programs under the names that the bridge looks for.
pub(crate) struct Incredibuild {
    pub(crate) folder: Folder,
}

impl Incredibuild {
    /// With `tool` on `PATH`: `xgConsole`, `IBConsole` or `ib_console`.
    pub(crate) fn new(tool: &str) -> Incredibuild {
        let folder = Folder::new();
        folder.mkdir("bin");
        let program = if tool == "ib_console" { "ib_console" } else { "xgconsole" };
        std::os::unix::fs::symlink(emulator(program), folder.path("bin").join(tool)).unwrap();
        Incredibuild { folder }
    }

    /// What makes a program see it.
    pub(crate) fn seen_by(&self, run: Run) -> Run {
        let path = std::env::var("PATH").unwrap();
        let bin = self.folder.path("bin").display().to_string();
        run.env("PATH", format!("{bin}:{path}")).env("FAKE_IB", self.folder.path(""))
    }

    /// The option that names the built-in adapter, with the emulator at its place, so that LLD needs no variables.
    pub(crate) fn adapter(&self) -> String {
        let text = include_str!("../../adapters/xgconsole.json");
        let mut manifest: Value = serde_json::from_str(text).unwrap();
        manifest["tool"] = self.folder.path("bin/xgConsole").to_str().unwrap().into();
        manifest["env"]["set"]["FAKE_IB"] = self.folder.path("").to_str().unwrap().into();
        let path = self.folder.write("xgconsole.json", manifest.to_string());
        format!("--adapter={}", path.display())
    }

    /// The number of tasks in each call that it took.
    pub(crate) fn calls(&self) -> Vec<usize> {
        self.lines("calls")
            .iter()
            .map(|line| line.split('\t').next().unwrap().parse().unwrap())
            .collect()
    }

    /// The arguments of call `n`, from 0.
    pub(crate) fn arguments(&self, n: usize) -> Vec<String> {
        self.lines("calls")[n].split('\t').skip(1).map(str::to_owned).collect()
    }

    /// How often it was refused because another build ran.
    pub(crate) fn refusals(&self) -> usize {
        self.lines("refused").len()
    }

    /// The lines of a file in its folder; none if it is not there.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// An emulator, built once for the tests of this program and never stale.
fn emulator(name: &str) -> PathBuf {
    let profile = Path::new(bridge_path()).parent().unwrap();
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let release = profile.ends_with("release").then_some("--release");
        Run::new(env!("CARGO"))
            .args(["build", "--quiet", "--examples"])
            .args(release)
            .env("CARGO_TARGET_DIR", target_dir())
            .cwd(env!("CARGO_MANIFEST_DIR"))
            .limit(300)
            .go()
            .ok();
    });
    profile.join("examples").join(name)
}
