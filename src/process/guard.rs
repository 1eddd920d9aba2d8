//! A small helper process that ends a link's processes, and removes its files, if the bridge is killed
//! before it could do so itself. It lives in a process group of its own and knows what it has been told
//! through its standard input; the end of that pipe without a farewell is the bridge's death. A mark in
//! their environment finds those processes that it had not yet been told of.

use std::collections::BTreeSet;
use std::io::{self, BufRead, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// The variable that marks a link's processes.
pub const MARK: &str = "_DTLTO_BRIDGE_LINK";
/// Processes can be on their way while the bridge dies: pauses between the looks for them.
const LOOKS: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(30),
    Duration::from_millis(100),
    Duration::from_millis(200),
];

/// The bridge's end of the helper.
#[derive(Debug)]
pub struct Guard {
    mark: String,
    child: Mutex<(Child, Option<ChildStdin>)>,
}

impl Guard {
    /// Starts the helper: this program again.
    ///
    /// # Errors
    /// It cannot be started, for lack of `/proc`, say.
    #[allow(clippy::disallowed_methods, reason = "this folder is the place that starts programs")]
    pub fn start(mark: &str) -> io::Result<Guard> {
        let mut child = std::process::Command::new("/proc/self/exe")
            .args(["guard", mark])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let pipe = child.stdin.take();
        Ok(Guard { mark: mark.to_owned(), child: Mutex::new((child, pipe)) })
    }

    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    fn tell(&self, kind: u8, text: &[u8]) {
        self.send(&[&[kind], text, &[0]].concat());
    }

    fn send(&self, message: &[u8]) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        // A helper that is gone helps no more; that is no reason to fail a link.
        if let Some(pipe) = &mut child.1 {
            let _ = pipe.write_all(message);
        }
    }

    pub(super) fn add(&self, pid: Pid) {
        self.tell(b'+', pid.to_string().as_bytes());
    }

    pub(super) fn remove(&self, pid: Pid) {
        self.tell(b'-', pid.to_string().as_bytes());
    }

    /// Files, and folders with all that is in them, that may not stay if the bridge is killed.
    pub fn remove_if_killed(&self, paths: &[PathBuf]) {
        let told = paths.iter().map(|path| [b"/", path.as_os_str().as_bytes(), b"\0"].concat());
        self.send(&told.collect::<Vec<_>>().concat());
    }

    /// Ends what left its process group but not its session, when a link is given up.
    pub fn end_strays(&self) {
        kill_marked(&self.mark);
    }

    /// Ends the helper: all is in order.
    pub fn dismiss(&self) {
        self.tell(b'q', b"");
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        child.1 = None;
        let _ = child.0.wait();
    }
}

/// The helper's life.
pub fn serve(mark: &str, told: impl BufRead) {
    let mut groups = BTreeSet::new();
    let mut paths = Vec::new();
    for message in told.split(0).map_while(Result::ok) {
        let Some((kind, text)) = message.split_first() else { continue };
        let pid = || std::str::from_utf8(text).ok()?.parse().ok().and_then(Pid::from_raw);
        match kind {
            b'q' => return,
            b'+' => groups.extend(pid().map(Pid::as_raw_nonzero)),
            b'-' => {
                pid().map(|pid| groups.remove(&pid.as_raw_nonzero()));
            }
            b'/' => paths.push(PathBuf::from(std::ffi::OsStr::from_bytes(text))),
            _ => {}
        }
    }
    for pid in groups.iter().filter_map(|raw| Pid::from_raw(raw.get())) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    for pause in LOOKS {
        std::thread::sleep(pause);
        kill_marked(mark);
        remove(&paths);
    }
}

/// Removes files and folders, those that are there.
pub fn remove(paths: &[PathBuf]) {
    for path in paths {
        if std::fs::remove_file(path).is_err() {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

/// The mark of a link within this one begins with ours. A process of a session of its own is a daemon that outlives
/// its link on purpose, a cache's server, say.
fn kill_marked(mark: &str) {
    let (own, wanted) = (session("self"), format!("{MARK}={mark}"));
    for pid in carrying(|entry| entry.starts_with(wanted.as_bytes())) {
        if session(&pid.to_string()) == own {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Ends all processes of this user, in whichever session, that have `NAME=value` in their environment.
pub fn end_carrying(entry: &str) {
    for pid in carrying(|found| found == entry.as_bytes()) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// The processes in whose environment there is such an entry, `NAME=value`.
fn carrying(is: impl Fn(&[u8]) -> bool) -> Vec<Pid> {
    let carries = |pid: &Pid| {
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|all| all.split(|&byte| byte == 0).any(&is))
    };
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw))
        .filter(carries)
        .collect()
}

/// The session of a process in `/proc`: 0 where its leader lives outside this PID namespace, which a
/// [`Pid`] cannot say.
fn session(process: &str) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before it, in parentheses, may hold blanks and parentheses.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_farewell_leaves_everything_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kept");
        std::fs::write(&file, "x").unwrap();
        let told = [b"/", file.as_os_str().as_bytes(), b"\0q\0"].concat();
        serve("none", told.as_slice());
        assert!(file.exists());
    }

    #[test]
    fn the_session_is_the_kernels() {
        let own = session("self").unwrap();
        // Not asked where it is 0, which rustix takes for impossible.
        assert!(
            own == 0 || rustix::process::getsid(None).unwrap().as_raw_pid().cast_unsigned() == own
        );
        assert_eq!(session("no process"), None);
    }

    #[test]
    fn without_a_farewell_files_and_folders_go() {
        let folder = tempfile::tempdir().unwrap();
        let (file, tree) = (folder.path().join("file"), folder.path().join("tree"));
        std::fs::write(&file, "x").unwrap();
        std::fs::create_dir_all(tree.join("deep")).unwrap();
        let told = [b"/", file.as_os_str().as_bytes(), b"\0/", tree.as_os_str().as_bytes(), b"\0"];
        serve("none", told.concat().as_slice());
        assert!(!file.exists() && !tree.exists());
    }
}
