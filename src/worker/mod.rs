//! The far half: takes a request, runs the compiler that this host's owner allowed, locked in, and gives a
//! response back. It trusts nothing that a request says, and knows nothing of links.

mod answer;
pub mod call;
pub mod compiler;
pub mod confined;
mod environment;
pub mod log;
pub mod memory;
pub mod sandbox;
pub mod scratch;
mod serve;
pub mod settings;
mod spool;
mod status;
pub mod store;
mod verdict;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::cli::WorkerVariables;
use crate::exit::Exit;
use crate::report;
use call::Call;

/// What the worker is asked for; `None` if this process is not called as a worker.
pub fn called(arguments: &[OsString]) -> Option<Call> {
    call::read(arguments, in_environment())
}

/// This process runs inside an icecream environment of ours.
fn in_environment() -> bool {
    Path::new(settings::ENVIRONMENT_FILE).exists()
}

/// Does what it is asked for. A job always ends in [`Exit::Ok`] with a response, whatever it says: daemons take
/// anything else for a fault of this host. Only where no response can be written the exit code tells.
pub fn work(call: Call) -> Exit {
    // Daemons leak descriptors, and nothing of ours is open yet.
    confined::close_inherited();
    let variables = WorkerVariables::read();
    let (text, exit) = match call {
        Call::Job { input, output } => match serve::serve(&input, &output, &variables) {
            Ok(()) => return Exit::Ok,
            // icecream would read our words, and guess. Without a response its client goes home by itself.
            Err(_) if in_environment() => return Exit::Ok,
            Err(error) => (format!("no response in {}: {error}", output.display()), Exit::Usage),
        },
        Call::Unclear(usage) => (usage, Exit::Usage),
        Call::Status => return status::status(&variables),
        Call::Check => return status::check(&variables),
        Call::Verify => return status::verify(&variables),
    };
    report::write_stderr(format!("dtlto-bridge: worker: {text}\n").as_bytes());
    exit
}

/// The binary that this process runs, where that can be told.
fn own_binary() -> Option<PathBuf> {
    std::env::current_exe().ok()
}

/// The settings in force.
///
/// # Errors
/// There are none.
fn find_settings(variables: &WorkerVariables) -> anyhow::Result<settings::Found> {
    settings::find(variables.settings.as_deref(), own_binary().as_deref())
}

impl settings::Found {
    /// Where jobs get their folders.
    ///
    /// # Errors
    /// That cannot be used.
    fn scratch(&self, variables: &WorkerVariables) -> anyhow::Result<scratch::Scratch> {
        // The daemon's TMPDIR means nothing in a chroot.
        let default = if self.environment { Path::new("/tmp") } else { &variables.temporary };
        scratch::Scratch::open(self.settings.scratch.as_deref().unwrap_or(default))
    }

    /// Where pieces are kept, if they are.
    ///
    /// # Errors
    /// That cannot be used.
    fn store(&self) -> anyhow::Result<Option<store::Store>> {
        let open = |place| store::Store::open(place, self.store_limit());
        self.settings.store.as_deref().map(open).transpose()
    }

    /// The whole environment of a compiler, but for its `TMPDIR`.
    fn compiler_variables(
        &self,
        home: &Path,
        variables: &WorkerVariables,
    ) -> Vec<(String, OsString)> {
        let text = |name: &str, value: OsString| (name.to_owned(), value);
        let mut set = vec![
            text("HOME", home.into()),
            text("LANG", "C".into()),
            text("PATH", "/usr/bin:/bin".into()),
        ];
        set.extend(variables.tunables.clone().map(|value| text("GLIBC_TUNABLES", value)));
        if let Some((first, rest)) = self.settings.library_path.split_first() {
            let join = |mut path: OsString, next: &PathBuf| {
                path.push(":");
                path.push(next);
                path
            };
            set.push(text("LD_LIBRARY_PATH", rest.iter().fold(first.into(), join)));
        }
        set
    }
}
