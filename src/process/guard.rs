//! A small helper process that ends a link's processes, and removes its files, if the bridge is killed
//! before it could do so itself. It lives in a process group of its own and knows what it has been told
//! through its standard input; the end of that pipe without a farewell is the bridge's death. A mark in
//! their environment finds those processes that it had not yet been told of.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::os::{self, Pid, Told};

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
        let mut command = std::process::Command::new(os::own_program()?);
        command.args(["guard", mark]).stdin(Stdio::piped());
        os::separate(command.stdout(Stdio::null()).stderr(Stdio::null()));
        let spawned = command.spawn();
        // From here on: the guard itself must live on.
        os::end_children_with_us();
        let mut child = spawned?;
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
        let told = paths.iter().map(|path| [b"/", &*os::path_bytes(path), b"\0"].concat());
        self.send(&told.collect::<Vec<_>>().concat());
    }

    /// Ends what left its process group but not its session, when a link is given up.
    pub fn end_strays(&self) {
        os::end_marked(MARK, &self.mark);
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
    let mut groups = Told::default();
    let mut paths = Vec::new();
    for message in told.split(0).map_while(Result::ok) {
        let Some((kind, text)) = message.split_first() else { continue };
        let number = || std::str::from_utf8(text).ok()?.parse().ok();
        match kind {
            b'q' => return,
            b'+' => number().into_iter().for_each(|number| groups.add(number)),
            b'-' => number().into_iter().for_each(|number| groups.remove(number)),
            b'/' => paths.push(os::path_from(text)),
            _ => {}
        }
    }
    groups.end();
    for pause in LOOKS {
        std::thread::sleep(pause);
        os::end_marked(MARK, mark);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_farewell_leaves_everything_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kept");
        std::fs::write(&file, "x").unwrap();
        let told = [b"/", &*os::path_bytes(&file), b"\0q\0"].concat();
        serve("none", told.as_slice());
        assert!(file.exists());
    }

    #[test]
    fn without_a_farewell_files_and_folders_go() {
        let folder = tempfile::tempdir().unwrap();
        let (file, tree) = (folder.path().join("file"), folder.path().join("tree"));
        std::fs::write(&file, "x").unwrap();
        std::fs::create_dir_all(tree.join("deep")).unwrap();
        let told = [b"/", &*os::path_bytes(&file), b"\0/", &*os::path_bytes(&tree), b"\0"];
        serve("none", told.concat().as_slice());
        assert!(!file.exists() && !tree.exists());
    }
}
