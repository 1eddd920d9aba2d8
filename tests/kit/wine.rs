//! The bridge built for Windows and run by Wine, in a prefix of the build's own. It does not know what the
//! programs do.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{Run, Running, missing, skipped, target_dir};

const TARGET: &str = "x86_64-pc-windows-gnu";
/// Where Debian has them; without its package `wine` they are not on `PATH`.
const WINE: &str = "/usr/lib/wine/wine64";
const SERVER: &str = "/usr/lib/wine/wineserver64";

/// Windows, as Wine has it. Its server ends with the last test that uses it.
pub(crate) struct Wine {
    prefix: PathBuf,
    /// Keeps the system's own processes alive: started by a test, they would be taken for the test's.
    keeper: Option<Running>,
}

impl Wine {
    /// Windows, with the programs for it; `None` where it cannot be had: then the test was said to be skipped.
    pub(crate) fn get() -> Option<Arc<Wine>> {
        static SHARED: Mutex<Weak<Wine>> = Mutex::new(Weak::new());
        if let Some(why) = lacking() {
            skipped(&why);
            return None;
        }
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let wine = shared.upgrade().unwrap_or_else(|| Arc::new(Wine::start()));
        *shared = Arc::downgrade(&wine);
        Some(wine)
    }

    fn start() -> Wine {
        build();
        let prefix = target_dir().join("tmp").join("wine");
        let mut wine = Wine { prefix, keeper: None };
        if !wine.prefix.join("system.reg").exists() {
            fs::create_dir_all(&wine.prefix).unwrap();
            wine.program(Path::new("wineboot")).arg("-i").limit(110).go().ok();
        }
        wine.add_random_bytes();
        wine.keeper = Some(wine.program(&wine.compiler()).arg("sleep").limit(600).start());
        wine.bridge().arg("--version").go().ok();
        wine
    }

    /// What Rust's standard library asks for and Wine 8 lacks.
    fn add_random_bytes(&self) {
        let library = self.prefix.join("drive_c/windows/system32/bcryptprimitives.dll");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/windows/prng.c");
        let options = ["-shared", "-O1", "-o"];
        let compiler = Run::new("x86_64-w64-mingw32-gcc").args(options).arg(library).arg(source);
        compiler.arg("-ladvapi32").go().ok();
    }

    /// A program for Windows.
    pub(crate) fn program(&self, program: &Path) -> Run {
        Run::new(WINE)
            .arg(program)
            .env("WINEPREFIX", &self.prefix)
            .env("WINEDEBUG", "-all")
            .env("WINEDLLOVERRIDES", "mscoree,mshtml=")
    }

    /// The bridge.
    pub(crate) fn bridge(&self) -> Run {
        self.program(&self.bridge_path())
    }

    /// The bridge's path here.
    pub(crate) fn bridge_path(&self) -> PathBuf {
        built("dtlto-bridge.exe")
    }

    /// The path here of the program that stands in for a compiler.
    pub(crate) fn compiler(&self) -> PathBuf {
        built("examples/stand-in-compiler.exe")
    }
}

impl Drop for Wine {
    fn drop(&mut self) {
        self.keeper = None;
        Run::new(SERVER).arg("-k").env("WINEPREFIX", &self.prefix).go();
        // It lets go of the prefix a moment later.
        let wait = Run::new(SERVER).arg("-w").env("WINEPREFIX", &self.prefix);
        wait.go();
    }
}

/// What programs for Windows call a path here.
pub(crate) fn on_windows(path: &Path) -> String {
    format!("Z:{}", path.to_str().unwrap().replace('/', "\\"))
}

/// A program that was built for Windows.
pub(crate) fn built(name: &str) -> PathBuf {
    target_dir().join(TARGET).join("debug").join(name)
}

fn lacking() -> Option<String> {
    if !Path::new(WINE).exists() || !Path::new(SERVER).exists() {
        return Some("not installed: wine64 (scripts/setup --all)".into());
    }
    let libraries = Run::new("rustc").args(["--print", "target-libdir", "--target", TARGET]).go();
    if !Path::new(libraries.stdout.trim()).is_dir() {
        return Some(format!("no Rust for {TARGET} (scripts/setup --all)"));
    }
    missing(&["x86_64-w64-mingw32-gcc"])
}

/// Builds all that runs on Windows, without what debuggers need: that is most of the work.
fn build() {
    Run::new(env!("CARGO"))
        .args(["build", "--quiet", "--target", TARGET, "--bin", "dtlto-bridge", "--examples"])
        .env("CARGO_TARGET_DIR", target_dir())
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .cwd(env!("CARGO_MANIFEST_DIR"))
        .limit(600)
        .go()
        .ok();
}
