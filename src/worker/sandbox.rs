//! Locks a compiler in with Landlock: it can read what it needs to run, write in its job's folder, and
//! reach nothing else, no network either where the kernel can forbid that. Bitcode can ask clang to read
//! any file (`module asm ".incbin ..."`), so checking arguments is not enough. It starts nothing.

use std::fmt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope, make_bitflags,
    path_beneath_rules,
};

use super::settings::Landlock;

/// The newest rules that are known; a kernel that knows fewer enforces those.
const NEWEST: ABI = ABI::V10;
/// What the oldest Landlock can do must be enforced.
const NEEDED: ABI = ABI::V1;

/// What a compiler may reach.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Files and folders to read. What is not there is left out.
    pub read: Vec<PathBuf>,
    /// Files and folders to read and to start programs from.
    pub run: Vec<PathBuf>,
    /// The folder to write in.
    pub write: PathBuf,
}

/// A way in, not entered yet.
#[derive(Debug)]
pub struct Sandbox {
    ruleset: Option<RulesetCreated>,
    need: Landlock,
}

/// Prepares the way in.
///
/// # Errors
/// There is no Landlock here and a job may not run without; the text names the setting.
pub fn prepare(rules: &Rules, need: Landlock) -> Result<Sandbox, NotLocked> {
    match create(rules) {
        Ok(ruleset) => Ok(Sandbox { ruleset: Some(ruleset), need }),
        Err(_) if need == Landlock::Try => Ok(Sandbox { ruleset: None, need }),
        Err(error) => Err(NotLocked(error.to_string())),
    }
}

/// A compiler cannot be locked in.
#[derive(Debug)]
pub struct NotLocked(String);

impl fmt::Display for NotLocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{REFUSAL} ({})", self.0)
    }
}

impl std::error::Error for NotLocked {}

const REFUSAL: &str = "this host cannot lock a compiler in with Landlock: use a kernel (5.13 or newer) and a \
    container that allow it, or set \"landlock\": \"try\" in the worker's settings if all who can send jobs \
    may read what the worker's user can read";

fn create(rules: &Rules) -> Result<RulesetCreated, landlock::RulesetError> {
    let writing = make_bitflags!(AccessFs::{ReadFile | ReadDir | WriteFile | RemoveFile | RemoveDir
        | MakeReg | MakeDir | Refer | Truncate});
    let reading = make_bitflags!(AccessFs::{ReadFile | ReadDir});
    let running = reading | AccessFs::Execute;
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(NEEDED))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?
        .add_rules(allow(&rules.read, reading))?
        .add_rules(allow(&rules.run, running))?
        .add_rules(allow(&[&rules.write], writing))
}

fn allow(
    paths: &[impl AsRef<Path>],
    access: BitFlags<AccessFs>,
) -> impl Iterator<Item = Result<landlock::PathBeneath<landlock::PathFd>, landlock::RulesetError>> {
    path_beneath_rules(paths, access)
}

impl Sandbox {
    /// Locks the calling thread in, and what it starts; other threads stay free. Tells whether it is locked
    /// in: where there is no Landlock a job may be allowed to run without.
    ///
    /// # Errors
    /// It may not, and the kernel refused.
    pub fn enter(self) -> Result<bool, NotLocked> {
        let Some(ruleset) = self.ruleset else { return Ok(false) };
        match ruleset.restrict_self() {
            Ok(status) if status.ruleset != RulesetStatus::NotEnforced => Ok(true),
            _ if self.need == Landlock::Try => Ok(false),
            Ok(_) => Err(NotLocked("the kernel enforces nothing".to_owned())),
            Err(error) => Err(NotLocked(error.to_string())),
        }
    }
}

/// What the kernel offers, for people.
pub fn describe() -> String {
    // Only a thread that was locked in learns it.
    let look = || create(&Rules::default()).ok()?.restrict_self().ok();
    let status = std::thread::spawn(look).join().ok().flatten();
    match status.map(|status| status.landlock) {
        Some(LandlockStatus::Available { effective_abi, .. }) => {
            let what = match effective_abi {
                abi if abi < ABI::V4 => "files",
                abi if abi < ABI::V6 => "files and TCP",
                _ => "files, TCP, signals and abstract sockets",
            };
            format!("version {} of its interface: {what} are locked", effective_abi as i32)
        }
        _ => "the kernel does not have it or has it switched off, or a container forbids it".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Groups;
    use crate::worker::confined::{Confined, Ended};
    use std::fs;
    use std::time::Duration;

    fn shell(script: &str, folder: &Path, sandbox: Sandbox) -> Ended {
        let confined = Confined {
            program: "/bin/bash".into(),
            name: "bash".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            folder: folder.into(),
            memory: None,
            file_size: 1 << 20,
            time: Duration::from_secs(20),
            printed: 1 << 16,
        };
        let enter = || {
            sandbox.enter()?;
            Ok(())
        };
        Groups::new(None).run_confined(&confined, enter).unwrap()
    }

    fn rules(folder: &Path) -> Rules {
        Rules {
            read: vec!["/etc/ld.so.cache".into(), "/not/there".into()],
            run: ["/usr", "/bin", "/lib", "/lib64"].map(Into::into).into(),
            write: folder.into(),
        }
    }

    fn works(script: &str) -> [bool; 2] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("in"), "x").unwrap();
        let locked = prepare(&rules(folder.path()), Landlock::Require).unwrap();
        let locked = shell(script, folder.path(), locked);
        let free = shell(script, folder.path(), Sandbox { ruleset: None, need: Landlock::Try });
        [&locked, &free].map(|ended| ended.status.success())
    }

    #[test]
    fn inside_its_folder_a_compiler_can_work() {
        assert_eq!(works("cat in > out && mv out o && mkdir d && rm -r d && : > o"), [true; 2]);
    }

    #[test]
    fn outside_it_can_do_nothing() {
        for script in [
            "cat /etc/passwd",
            "ls /etc",
            "ls /",
            "ls /proc/self/fd/",
            "ls /dev/",
            ": > /dev/null",
            "cat /proc/self/environ",
            "ln -s /etc/passwd l; cat l",
        ] {
            assert_eq!(works(script), [false, true], "{script}");
        }
    }

    #[test]
    fn what_it_wrote_it_cannot_run() {
        assert_eq!(works("cp /bin/true t && chmod +x t && ./t"), [false, true]);
    }

    #[test]
    fn a_server_here_cannot_be_reached() {
        if !describe().contains("TCP") {
            return;
        }
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        assert_eq!(works(&format!("exec 9<>/dev/tcp/127.0.0.1/{port}")), [false, true]);
    }

    #[test]
    fn other_processes_cannot_be_signalled() {
        if !describe().contains("signals") {
            return;
        }
        let pid = rustix::process::getpid();
        assert_eq!(works(&format!("kill -0 {pid}")), [false, true]);
    }

    #[test]
    fn only_the_thread_that_enters_is_locked_in() {
        let folder = tempfile::tempdir().unwrap();
        let sandbox = prepare(&rules(folder.path()), Landlock::Require).unwrap();
        let locked = std::thread::spawn(move || {
            assert!(sandbox.enter().unwrap());
            fs::read("/etc/passwd").is_err()
        });
        assert!(locked.join().unwrap());
        assert!(fs::read("/etc/passwd").is_ok());
        assert!(describe().starts_with("version "), "{}", describe());
    }
}
