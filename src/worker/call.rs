//! How the worker is called: by people and scripts, by distccd, by icecream's daemon. Decided from the
//! arguments alone, before any other reading of the command line. It opens nothing.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Where a request comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A file.
    File(PathBuf),
    /// Standard input, from icecream.
    Stdin,
}

/// What the worker is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A job: a request there, a response here.
    Job {
        /// The request.
        input: Input,
        /// Where the response goes.
        output: PathBuf,
    },
    /// Totals of the log (`--status`).
    Status,
    /// Would this worker take jobs (`--check`)?
    Check,
    /// icecream runs `/bin/true` once to see whether its environment works.
    Verify,
    /// A mistake; the text says what is expected.
    Unclear(String),
}

const USAGE: &str =
    "expected: worker IN OUT, or worker -c IN -o OUT, or worker --status, or worker --check";

/// Options of icecream's command line that take the next argument.
const TAKE_NEXT: [&str; 4] = ["-Xclang", "-target", "-x", "--param"];

/// Finds out what the worker is asked for; `None` if the call is none for the worker.
///
/// `environment`: this process runs inside an icecream environment of ours.
pub fn read(arguments: &[OsString], environment: bool) -> Option<Call> {
    let (own_name, rest) = arguments.split_first()?;
    let name = Path::new(own_name).file_name().unwrap_or_default();
    if rest.last().is_some_and(|last| last == "--help" || last == "-h") {
        return None;
    }
    if name == "dtlto-worker" {
        return (rest != ["--version"]).then(|| job(rest));
    }
    match rest.split_first() {
        Some((first, rest)) if first == "worker" => Some(job(rest)),
        Some((first, _)) if first == "guard" => None,
        _ if !environment => None,
        _ if name == "true" || name == "as" => Some(Call::Verify),
        _ => Some(job(rest)),
    }
}

fn job(arguments: &[OsString]) -> Call {
    match arguments {
        [only] if only == "--status" => return Call::Status,
        [only] if only == "--check" => return Call::Check,
        [input, output] if !starts_with_dash(input) && !starts_with_dash(output) => {
            return Call::Job { input: Input::File(input.into()), output: output.into() };
        }
        _ => {}
    }
    let (mut input, mut output) = (None, None);
    let mut left = arguments.iter();
    while let Some(argument) = left.next() {
        match argument.to_str() {
            Some("-c") => input = left.next(),
            Some("-o") => output = left.next(),
            Some(known) if TAKE_NEXT.contains(&known) => drop(left.next()),
            _ => {}
        }
    }
    match (input, output) {
        (Some(input), Some(output)) if input == "-" => {
            Call::Job { input: Input::Stdin, output: output.into() }
        }
        (Some(input), Some(output)) => {
            Call::Job { input: Input::File(input.into()), output: output.into() }
        }
        _ => Call::Unclear(USAGE.to_owned()),
    }
}

fn starts_with_dash(argument: &OsStr) -> bool {
    argument.as_encoded_bytes().starts_with(b"-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(line: &str, environment: bool) -> Option<Call> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        read(&words, environment)
    }

    fn file_job(input: &str, output: &str) -> Option<Call> {
        Some(Call::Job { input: Input::File(input.into()), output: output.into() })
    }

    #[test]
    fn people_name_two_files() {
        assert_eq!(called("/x/dtlto-bridge worker a b", false), file_job("a", "b"));
        assert_eq!(called("dtlto-worker a b", false), file_job("a", "b"));
    }

    #[test]
    fn distccd_calls_it_like_a_compiler() {
        let expected = file_job("/tmp/distccd_1.i", "/tmp/distccd_2.o");
        let rest = "-c /tmp/distccd_1.i -o /tmp/distccd_2.o";
        assert_eq!(called(&format!("/usr/bin/dtlto-worker {rest}"), false), expected);
        assert_eq!(called(&format!("dtlto-bridge worker {rest}"), false), expected);
    }

    #[test]
    fn icecream_gives_the_request_on_standard_input() {
        let line = "/usr/bin/clang -x c -Xclang -main-file-name -Xclang -c -Xclang \
                    -fdebug-compilation-dir -Xclang -o -target x86_64-pc-linux-gnu -c - -o icecc-7.o \
                    -no-canonical-prefixes";
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        let expected = Call::Job { input: Input::Stdin, output: "icecc-7.o".into() };
        assert_eq!(called(&line, true), Some(expected));
        assert_eq!(called(&line, false), None);
        assert_eq!(called("/bin/true", true), Some(Call::Verify));
    }

    #[test]
    fn other_calls_are_not_for_the_worker() {
        assert_eq!(called("dtlto-bridge jobs.json", false), None);
        assert_eq!(called("dtlto-bridge -v worker", false), None);
        assert_eq!(called("/usr/bin/dtlto-worker --version", false), None);
        assert_eq!(read(&[], false), None);
    }

    #[test]
    fn without_an_output_there_is_nothing_to_answer_with() {
        for line in ["dtlto-worker", "dtlto-worker -c a", "dtlto-worker a", "dtlto-worker a -o"] {
            assert!(matches!(called(line, false), Some(Call::Unclear(_))), "{line}");
        }
        assert_eq!(called("dtlto-worker --status", false), Some(Call::Status));
        assert_eq!(called("dtlto-worker --check", false), Some(Call::Check));
    }
}
