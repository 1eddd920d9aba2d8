//! Tells of signals and of the linker's end. LLD, when it is killed or interrupted, neither waits for its
//! distributor nor ends it (measured with 21 to 23), and deletes the job file. It does not know what follows.

use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::os::{Callers, Parent};
pub use crate::os::{raise_again, signals};

/// Between two looks for the job file, and for the parent where its end is not told.
const LOOK: Duration = Duration::from_millis(200);

/// The linker: who started us.
#[derive(Clone, Copy, Debug)]
pub struct Linker(Parent);

impl Linker {
    /// To be called first of all.
    pub fn seen_at_start() -> Self {
        Linker(Parent::seen_at_start())
    }

    /// Our parent is still the same, and has not deleted the job file, as LLD does when it gives up.
    pub fn waits_for(self, job_file: &Path) -> bool {
        self.0.lives() && !matches!(job_file.try_exists(), Ok(false))
    }

    /// Calls `tell` once when the linker has ended or given up. A wrapper between LLD and us may live on:
    /// then the missing job file tells, or the end of who started the wrapper.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn watch(self, job_file: PathBuf, tell: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let watch = move || {
            let callers = Callers::of(self.0, &job_file);
            while self.waits_for(&job_file) && !callers.wait(LOOK) {}
            tell();
        };
        thread::Builder::new().name("linker".into()).spawn(watch)?;
        Ok(())
    }
}
