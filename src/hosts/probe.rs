//! What the probe of a host says: a tiny job sent through distcc's client. It judges what came of it and sends
//! nothing itself.
//!
//! Whoever sends probes sends them to all hosts at once, each with [`TIME`] as its limit, ends the clients
//! that are not done by then, and gives those [`Verdict::silent`]: one verdict on the whole farm after `TIME`.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use super::list::without_origin;

/// What a probe may take: a farm that is wholly dead is to cost a link less than 10 s.
pub const TIME: Duration = Duration::from_secs(9);
/// The tripwire's exit code: distcc's client has started the job on this machine.
pub const TRIPWIRE: i32 = 86;
/// distcc's own codes that reach a caller.
const NO_COMPILER: i32 = 110;
const NO_HOSTS: i32 = 116;
const TOO_LONG: i32 = 118;

/// What the response file of a probe held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No response, or none to this request.
    None,
    /// The worker can do this link's jobs.
    Good {
        /// It keeps pieces.
        stores: bool,
    },
    /// It has no compiler, or another one; its words.
    OtherClang(String),
    /// It does not do our jobs for another reason; its words.
    Refused(String),
}

/// What is to be thought of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is", content = "text")]
pub enum Verdict {
    /// It can do this link's jobs.
    Good {
        /// It keeps pieces.
        stores: bool,
    },
    /// The daemon allows the worker, but there is none.
    WorkerMissing,
    /// The daemon hangs up: this machine, or the worker, is not on its lists. It does not say which.
    NotAllowed,
    /// It has no compiler, or another one; the worker's words.
    OtherClang(String),
    /// There is no daemon, or no way to it.
    Down(String),
    /// Something else is wrong there.
    Refused(String),
}

impl Verdict {
    /// Judges a probe by the exit code of distcc's client (none after a signal), what it printed, and the
    /// response.
    pub fn of(code: Option<i32>, stderr: &str, answer: Answer) -> Self {
        match (answer, code) {
            (Answer::Good { stores }, Some(0)) => return Verdict::Good { stores },
            (Answer::OtherClang(text), _) => return Verdict::OtherClang(text),
            (Answer::Refused(text), _) => return Verdict::Refused(text),
            (Answer::Good { .. } | Answer::None, _) => {}
        }
        let cause = cause(stderr);
        match code {
            Some(NO_COMPILER) => Verdict::WorkerMissing,
            Some(NO_HOSTS) => unreachable_for(stderr, cause),
            Some(TOO_LONG) => Verdict::Down("its --job-lifetime was over".into()),
            Some(TRIPWIRE) => {
                Verdict::Refused("distcc's client wanted to run the job on this machine".into())
            }
            Some(0) => Verdict::Refused(
                "its answer is not a worker's: another program has the worker's name there".into(),
            ),
            Some(code) => Verdict::Refused(format!("distcc's client exited with {code}: {cause}")),
            None => Verdict::Down(format!("distcc's client was ended: {cause}")),
        }
    }

    /// Of a host whose probe took too long.
    pub fn silent() -> Self {
        Verdict::Down(format!("no answer within {} s", TIME.as_secs()))
    }

    /// The host can do this link's jobs.
    pub fn is_good(&self) -> bool {
        matches!(self, Verdict::Good { .. })
    }

    /// The verdict in a few words.
    pub fn words(&self) -> String {
        match self {
            Verdict::Good { .. } => "good".into(),
            Verdict::WorkerMissing => "worker missing".into(),
            Verdict::NotAllowed => "not allowed".into(),
            Verdict::OtherClang(text) => format!("other clang: {text}"),
            Verdict::Down(text) => format!("down: {text}"),
            Verdict::Refused(text) => format!("refused: {text}"),
        }
    }

    /// What the administrator can do about it.
    pub fn next_step(&self) -> Option<&'static str> {
        Some(match self {
            Verdict::Good { .. } => return None,
            Verdict::WorkerMissing => {
                "install the worker there (scripts/install-worker), at the path that stands in the \
                 file that DISTCC_CMDLIST names, if distccd has one"
            }
            Verdict::NotAllowed => {
                "allow this machine there (distccd --allow), and the worker: a link \
                 /usr/lib/distcc/dtlto-worker, or a line in the file that DISTCC_CMDLIST names; then \
                 restart distccd, whose log tells which of the two it was"
            }
            Verdict::OtherClang(_) => {
                "install the same version of clang there, and name it under `compilers` in \
                 /etc/dtlto-worker.json"
            }
            Verdict::Down(_) => {
                "see that distccd runs there and listens on this port, that the name is right, and \
                 that no firewall is in between; or mark it `,down` in distcc's list of hosts"
            }
            Verdict::Refused(_) => {
                "see the worker's log there (`log` in /etc/dtlto-worker.json), and distccd's"
            }
        })
    }
}

/// What the client says of a connection that was there before it broke off: while it waited for the answer, or
/// was still sending.
const AFTER_CONNECTING: [&str; 3] = ["server provided no answer", "failed to write", "sendfile"];

/// distcc's code for every way in which a host was not reached or did not answer.
fn unreachable_for(stderr: &str, cause: String) -> Verdict {
    let says = |words: &str| stderr.contains(words);
    let hung_up = says("unexpected eof") || says("reset by peer") || says("Broken pipe");
    if says("Failed to perform authentication") {
        Verdict::Refused("it could not be proved who asks (GSS-API)".into())
    } else if says("protocol derailment") {
        Verdict::Refused("what answers on that port is not distccd".into())
    } else if says("IO timeout") {
        Verdict::Down("it took the connection but gave no answer in time".into())
    } else if hung_up && says("ssh: ") || says("failed to exec") {
        Verdict::Down(cause)
    } else if hung_up && AFTER_CONNECTING.iter().any(|words| says(words)) {
        Verdict::NotAllowed
    } else {
        Verdict::Down(cause)
    }
}

/// The first line that tells more than that nothing could be done.
fn cause(stderr: &str) -> String {
    const EMPTY: [&str; 2] = ["failed to distribute", "Warning: "];
    let mut lines = stderr.lines().filter(|line| !EMPTY.iter().any(|empty| line.contains(empty)));
    let line = lines.next().map(without_origin).filter(|line| !line.is_empty());
    line.unwrap_or("it did not say why").chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_ANSWER: &str = "distcc[9] (dcc_r_result_header) ERROR: server provided no answer. Is the \
         server configured to allow access from your IP address?\n\
         distcc[9] (dcc_build_somewhere) ERROR: failed to distribute and fallbacks are disabled\n";

    fn of(code: i32, stderr: &str) -> Verdict {
        Verdict::of(Some(code), stderr, Answer::None)
    }

    #[test]
    fn a_response_beats_all_else() {
        let refused = Answer::Refused("no settings".into());
        let good = Verdict::of(Some(0), "", Answer::Good { stores: true });
        assert_eq!(good, Verdict::Good { stores: true });
        assert_eq!(Verdict::of(Some(0), "", refused), Verdict::Refused("no settings".into()));
        let other = Verdict::of(Some(0), "", Answer::OtherClang("22.1.7".into()));
        assert_eq!(other, Verdict::OtherClang("22.1.7".into()));
        assert!(!Verdict::of(Some(116), NO_ANSWER, Answer::Good { stores: true }).is_good());
    }

    #[test]
    fn no_answer_after_a_hang_up_means_not_allowed() {
        for how in ["unexpected eof on fd4", "failed to read: Connection reset by peer"] {
            let text = format!("distcc[9] (dcc_readx) ERROR: {how}\n{NO_ANSWER}");
            assert_eq!(of(116, &text), Verdict::NotAllowed);
        }
    }

    #[test]
    fn a_hang_up_while_the_request_is_sent_means_not_allowed_too() {
        let text = "distcc[9] (dcc_writex) ERROR: failed to write: Connection reset by peer\n\
             distcc[9] (dcc_build_somewhere) ERROR: failed to distribute and fallbacks are disabled\n";
        assert_eq!(of(116, text), Verdict::NotAllowed);
        let connecting =
            "distcc[9] ERROR: nonblocking connect to h:3632 failed: Connection reset by peer\n";
        assert!(matches!(of(116, connecting), Verdict::Down(_)));
    }

    #[test]
    fn a_worker_that_is_not_there_has_a_code_of_its_own() {
        assert_eq!(of(110, ""), Verdict::WorkerMissing);
    }

    #[test]
    fn a_host_that_is_down_says_how() {
        let refused = "distcc[9] ERROR: nonblocking connect to 127.0.0.1:4877 failed: Connection refused\n\
             distcc[9] (dcc_build_somewhere) ERROR: failed to distribute and fallbacks are disabled\n";
        let down = Verdict::Down(
            "nonblocking connect to 127.0.0.1:4877 failed: Connection refused".into(),
        );
        assert_eq!(of(116, refused), down);
        let ssh = format!(
            "ssh: Could not resolve hostname nosuch: Name or service not known\n\
             distcc[9] (dcc_readx) ERROR: unexpected eof on fd6\n{NO_ANSWER}"
        );
        assert!(matches!(of(116, &ssh), Verdict::Down(text) if text.contains("resolve hostname")));
        let slow = format!("distcc[9] (dcc_select_for_read) ERROR: IO timeout\n{NO_ANSWER}");
        assert!(matches!(of(116, &slow), Verdict::Down(_)));
        assert!(matches!(Verdict::of(None, "", Answer::None), Verdict::Down(_)));
        assert!(matches!(Verdict::silent(), Verdict::Down(_)));
    }

    #[test]
    fn what_is_no_distccd_or_no_worker_is_refused_with_the_reason() {
        let text =
            "distcc[9] (dcc_r_token_int) ERROR: protocol derailment: expected token \"DONE\"\n";
        assert!(matches!(of(116, text), Verdict::Refused(text) if text.contains("not distccd")));
        assert!(matches!(of(0, ""), Verdict::Refused(text) if text.contains("not a worker's")));
        assert!(matches!(of(86, ""), Verdict::Refused(text) if text.contains("this machine")));
        assert!(matches!(of(107, "x"), Verdict::Refused(text) if text.ends_with("107: x")));
    }

    #[test]
    fn each_trouble_has_a_next_step() {
        assert_eq!(Verdict::Good { stores: false }.next_step(), None);
        for verdict in [of(110, ""), of(116, ""), of(116, NO_ANSWER), of(0, ""), Verdict::silent()]
        {
            assert!(verdict.next_step().is_some_and(|step| !step.is_empty()), "{verdict:?}");
        }
    }
}
