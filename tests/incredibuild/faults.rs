//! What a test wants to go wrong: `FAKE_IB_FAULTS="lost:task2 empty:*@1"`. A fault may name a task, or `*` for
//! all, and a call, without which it holds for all calls. Nothing here is Incredibuild's.

/// The faults of one call.
#[derive(Debug)]
pub(crate) struct Faults {
    active: Vec<(String, Option<String>)>,
}

/// Faults of a task: never run; output not brought back; empty; cut off; another job's object; its machine is lost
/// once, or each time; run twice; code 1 though all is well; no end until its time limit, or for ever; its mask does not match.
const OF_TASK: [&str; 12] = [
    "lost",
    "dropped",
    "empty",
    "truncated",
    "wrong",
    "agent-lost",
    "agents-lost",
    "twice",
    "code1",
    "hangs",
    "mask",
    "stuck",
];
/// Faults of the whole call.
const OF_CALL: [&str; 7] = ["exit2", "exit3", "exit4", "unlicensed", "flood", "silent", "late2"];

impl Faults {
    pub(crate) fn read(text: &str, call: usize) -> Faults {
        let one = |word: &str| {
            let (fault, only) = word.split_once('@').map_or((word, None), |(f, n)| (f, Some(n)));
            let (kind, task) = fault.split_once(':').map_or((fault, None), |(k, t)| (k, Some(t)));
            let known =
                if task.is_some() { OF_TASK.contains(&kind) } else { OF_CALL.contains(&kind) };
            assert!(known, "no such fault: {word}");
            let now = only.is_none_or(|only| only.parse::<usize>().unwrap() == call);
            now.then(|| (kind.to_owned(), task.map(str::to_owned)))
        };
        Faults { active: text.split_whitespace().filter_map(one).collect() }
    }

    /// Whether a fault of the whole call is wanted.
    pub(crate) fn call(&self, kind: &str) -> bool {
        self.active.iter().any(|(fault, task)| fault == kind && task.is_none())
    }

    /// Whether a fault of the task with this name is wanted.
    pub(crate) fn task(&self, kind: &str, name: &str) -> bool {
        let is = |task: &str| task == "*" || task == name;
        self.active.iter().any(|(fault, task)| fault == kind && task.as_deref().is_some_and(is))
    }
}
