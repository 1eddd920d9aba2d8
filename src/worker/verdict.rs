//! What the end of a compiler means: its own result, or a fault of this host that another would not have.
//! It starts and opens nothing but the object it judges.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use super::confined::Ended;
use crate::attempt::describe;
use crate::bundle::Answer;
use crate::collect::{self, object};

/// What is printed where memory, address space or a library is missing; and what that means.
const HOST_FAULTS: [(&str, &str); 10] = [
    ("error while loading shared libraries", "the compiler could not be loaded"),
    ("cannot open shared object file", "the compiler could not be loaded"),
    ("CPU ISA level is lower than required", "this CPU lacks what the compiler's libraries need"),
    ("failed to map segment from shared object", "the compiler ran out of memory"),
    ("LLVM ERROR: out of memory", "the compiler ran out of memory"),
    ("annot allocate memory", "the compiler ran out of memory"),
    ("std::bad_alloc", "the compiler ran out of memory"),
    ("memory exhausted", "the compiler ran out of memory"),
    ("No space left on device", "the scratch folder is full"),
    ("Disk quota exceeded", "the scratch folder is full"),
];
const SIGILL: i32 = 4;
const SIGBUS: i32 = 7;
const SIGKILL: i32 = 9;
const SIGXFSZ: i32 = 25;

/// An answer, and what the log says of it.
#[derive(Debug)]
pub(super) struct Verdict {
    /// For the bridge.
    pub(super) answer: Answer,
    /// For the owner.
    pub(super) detail: String,
}

/// Judges; `object` is where the object should be.
pub(super) fn judge(ended: &Ended, object: &Path, output_limit: u64) -> Verdict {
    if ended.timed_out {
        return Verdict { answer: Answer::TimedOut, detail: String::new() };
    }
    let status = ended.status;
    let made = object::check_object(object);
    let (code, signal) = (status.code(), status.signal());
    if let Some(reason) = host_fault(ended, made.is_ok(), output_limit) {
        return Verdict { detail: describe(status), answer: Answer::Unfit { reason } };
    }
    let mut detail = describe(status);
    match (status.success(), collect::false_success(&ended.stderr), made) {
        (true, Some(words), _) => detail += &format!(" but said {words:?}"),
        (true, None, Err(error)) => detail += &format!(" but the object {error:#}"),
        _ => {}
    }
    Verdict { answer: Answer::Ran { code, signal }, detail }
}

/// Why this host, and not the compiler, is to blame for a failure.
fn host_fault(ended: &Ended, object_made: bool, output_limit: u64) -> Option<String> {
    if ended.status.success() && object_made {
        return None;
    }
    match ended.status.signal() {
        Some(SIGKILL) => {
            return Some("the compiler was killed, most likely for its use of memory".to_owned());
        }
        Some(SIGILL) => {
            return Some("this CPU lacks an instruction that the compiler uses".to_owned());
        }
        Some(SIGBUS) => {
            return Some(
                "a file that the compiler had mapped was cut off, or its disk failed".into(),
            );
        }
        Some(SIGXFSZ) => {
            return Some(format!(
                "the compiler wrote more than {output_limit} bytes into one file: \
                 see limits.output in the worker's settings"
            ));
        }
        _ => {}
    }
    let said = |words: &str| ended.stderr.windows(words.len()).any(|part| part == words.as_bytes());
    let (words, meaning) = HOST_FAULTS.iter().find(|(words, _)| said(words))?;
    Some(format!("{meaning} ({words})"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::ExitStatus;

    fn ended(raw: i32, stderr: &str) -> Ended {
        Ended {
            status: ExitStatus::from_raw(raw),
            timed_out: false,
            stdout: Vec::new(),
            stderr: stderr.into(),
            peak_kb: 0,
        }
    }

    fn verdict(raw: i32, stderr: &str) -> Verdict {
        judge(&ended(raw, stderr), Path::new("/not/there.o"), 7)
    }

    fn unfit(raw: i32, stderr: &str) -> String {
        match verdict(raw, stderr).answer {
            Answer::Unfit { reason } => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_compilers_own_failure_is_its_own() {
        let answer = verdict(1 << 8, "error: no\n").answer;
        assert_eq!(answer, Answer::Ran { code: Some(1), signal: None });
        assert_eq!(verdict(11, "").answer, Answer::Ran { code: None, signal: Some(11) });
    }

    #[test]
    fn a_lack_of_memory_is_the_hosts() {
        assert!(unfit(SIGKILL, "").contains("killed"));
        assert!(unfit(6, "LLVM ERROR: out of memory\n").contains("memory"));
        assert!(
            unfit(0, "Error loading imported file 'm1': Cannot allocate memory").contains("memory")
        );
        assert!(
            unfit(127 << 8, "clang: error while loading shared libraries: x").contains("loaded")
        );
        assert!(unfit(SIGILL, "").contains("instruction"));
        assert!(unfit(SIGBUS, "").contains("cut off"));
        let level = "libz.so.1: CPU ISA level is lower than required";
        assert!(unfit(127 << 8, level).contains("this CPU lacks"));
        assert!(unfit(SIGXFSZ, "").contains("limits.output"));
    }

    #[test]
    fn success_without_an_object_is_told_to_the_owner() {
        let verdict = verdict(0, "");
        assert_eq!(verdict.answer, Answer::Ran { code: Some(0), signal: None });
        assert_eq!(verdict.detail, "exited with 0 but the object was not made");
    }

    #[test]
    fn words_about_memory_in_a_good_jobs_warnings_mean_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let object = folder.path().join("out.o");
        std::fs::write(&object, b"\0asm\x01\0\0\0").unwrap();
        let verdict = judge(&ended(0, "warning: out of std::bad_alloc"), &object, 7);
        assert_eq!(verdict.answer, Answer::Ran { code: Some(0), signal: None });
    }

    #[test]
    fn a_time_out_is_one_whatever_else_happened() {
        let late = Ended { timed_out: true, ..ended(SIGKILL, "") };
        assert_eq!(judge(&late, Path::new("/x"), 7).answer, Answer::TimedOut);
    }
}
