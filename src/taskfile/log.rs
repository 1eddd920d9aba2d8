//! Reads, as it comes, what xgConsole prints: a block for each task, which begins with the task's output prefix and, with
//! `/ShowAgent`, names the machine. It does not know what the words in a block mean.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// More of a task's words than these bytes are left out.
const WORDS_LIMIT: usize = 64 << 10;
/// A longer line is cut: no tool may make us hold all memory.
const LINE_LIMIT: usize = 64 << 10;

/// The output prefix of a job's task.
pub fn prefix(job: usize) -> String {
    format!("@dtlto_{job} ")
}

/// Where a task ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ran {
    /// The log does not say.
    #[default]
    Unknown,
    /// On this machine.
    Here,
    /// On this other one.
    On(String),
}

/// What the log says of a task.
#[derive(Clone, Debug)]
pub struct Told {
    /// Where it ran, the last time.
    pub ran: Ran,
    /// How long it took, if the log says so.
    pub took: Option<Duration>,
    /// When its block came.
    pub ended: Instant,
    /// What it printed.
    pub words: Vec<u8>,
}

impl Told {
    fn now(header: &str, own_name: &str) -> Self {
        let (ran, took) = (ran(header, own_name), took(header));
        Told { ran, took, ended: Instant::now(), words: Vec::new() }
    }
}

/// A log that is being read.
#[derive(Debug, Default)]
pub struct Log {
    /// This machine's name.
    pub own_name: String,
    /// By job.
    pub tasks: HashMap<usize, Told>,
    /// What belongs to no task: the tool's own words.
    pub own_words: Vec<u8>,
    line: Vec<u8>,
    current: Option<usize>,
}

impl Log {
    /// A log of which nothing was read yet.
    pub fn new(own_name: &str) -> Self {
        Log { own_name: own_name.to_owned(), ..Log::default() }
    }

    /// Reads on; `on_task` hears of each task whose block begins.
    pub fn push(&mut self, bytes: &[u8], on_task: &mut dyn FnMut(usize)) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE_LIMIT.saturating_sub(self.line.len());
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                self.end_line(on_task);
            }
        }
    }

    /// Takes what came without an end of line.
    pub fn finish(&mut self, on_task: &mut dyn FnMut(usize)) {
        if !self.line.is_empty() {
            self.end_line(on_task);
        }
    }

    fn end_line(&mut self, on_task: &mut dyn FnMut(usize)) {
        let line = std::mem::take(&mut self.line);
        // A Windows console has an encoding of its own: words stay as they come.
        let line = without_task_id(line.trim_ascii_end());
        let text = String::from_utf8_lossy(&line);
        if let Some((job, header)) = of_task(&text) {
            let told = Told::now(header, &self.own_name);
            if self.current.replace(job) == Some(job) && told.ran == Ran::Unknown {
                // The prefix may stand before each line of a block, not only the first.
                return self.words(job, header.as_bytes());
            }
            self.tasks.insert(job, told);
            on_task(job);
            return;
        }
        match self.current {
            Some(job) => self.words(job, &line),
            None => add(&mut self.own_words, &line),
        }
    }

    fn words(&mut self, job: usize, line: &[u8]) {
        let told = self.tasks.entry(job).or_insert_with(|| Told::now("", ""));
        add(&mut told.words, line);
    }
}

fn add(words: &mut Vec<u8>, line: &[u8]) {
    if words.len() + line.len() < WORDS_LIMIT {
        words.extend_from_slice(line);
        words.push(b'\n');
    }
}

/// `{{xgTaskID=00000008}}` may stand anywhere and means nothing to us.
fn without_task_id(line: &[u8]) -> Cow<'_, [u8]> {
    let at = |text: &[u8]| line.windows(text.len()).position(|part| part == text);
    match (at(b"{{xgTaskID="), at(b"}}")) {
        (Some(from), Some(to)) if from < to => [&line[..from], &line[to + 2..]].concat().into(),
        _ => line.into(),
    }
}

/// `(0:00.21 at +0:03)`, minutes and seconds.
fn took(header: &str) -> Option<Duration> {
    let (before, _) = header.rsplit_once(" at +")?;
    let (_, time) = before.rsplit_once('(')?;
    let (minutes, seconds) = time.rsplit_once(':')?;
    let (minutes, seconds) = (minutes.parse::<u32>().ok()?, seconds.parse::<f64>().ok()?);
    Duration::try_from_secs_f64(f64::from(minutes) * 60.0 + seconds).ok()
}

/// The job, and what follows its prefix.
fn of_task(line: &str) -> Option<(usize, &str)> {
    let rest = line.strip_prefix("@dtlto_")?;
    let (number, header) = rest.split_once(' ').unwrap_or((rest, ""));
    Some((number.parse().ok()?, header))
}

/// `(Agent 'build7 (Core #2)')`; this machine is `Local CPU`, or has its own name there.
fn ran(header: &str, own_name: &str) -> Ran {
    let Some((_, rest)) = header.rsplit_once("(Agent '") else {
        return if header.contains("Local CPU") { Ran::Here } else { Ran::Unknown };
    };
    let Some((agent, _)) = rest.split_once("')") else { return Ran::Unknown };
    let host = agent.split(" (").next().unwrap_or(agent).trim();
    if agent.contains("Local CPU") || host.eq_ignore_ascii_case(own_name) {
        return Ran::Here;
    }
    if host.is_empty() { Ran::Unknown } else { Ran::On(host.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Log, Vec<usize>) {
        let mut log = Log::new("HERE");
        let mut seen = Vec::new();
        // In small pieces, as pipes bring it.
        for piece in text.as_bytes().chunks(7) {
            log.push(piece, &mut |job| seen.push(job));
        }
        log.finish(&mut |job| seen.push(job));
        (log, seen)
    }

    #[test]
    fn each_task_has_its_words_and_its_machine() {
        let (log, seen) = read(
            "banner\r\n@dtlto_7 b.o (Agent 'build7 (Core #2)') (0:00.21 at +0:03)\r\nb.o: warning\r\n\
             @dtlto_0 a.o (Agent 'Local CPU 1') (1:01.5 at +1:04)\n{{xgTaskID=00000008}}\n\
             @dtlto_12 c.o (Agent 'here (Core #1)')\n@dtlto_3 d.o\nno agent",
        );
        assert_eq!(seen, [7, 0, 12, 3]);
        assert_eq!(log.own_words, b"banner\n");
        assert_eq!(log.tasks[&7].ran, Ran::On("build7".into()));
        assert_eq!(log.tasks[&7].words, b"b.o: warning\n");
        let took = |job| log.tasks[&job].took.map(|took: Duration| took.as_millis());
        assert_eq!([took(7), took(0), took(12)], [Some(210), Some(61_500), None]);
        assert_eq!((&log.tasks[&0].ran, &log.tasks[&12].ran), (&Ran::Here, &Ran::Here));
        assert_eq!(
            (&log.tasks[&3].ran, &*log.tasks[&3].words),
            (&Ran::Unknown, &b"no agent\n"[..])
        );
    }

    #[test]
    fn the_last_run_of_a_task_counts() {
        let (log, _) = read(
            "@dtlto_1 a.o (Agent 'x (Core #1)')\nlost\n@dtlto_2 b.o (Agent 'x (Core #1)')\n\
             @dtlto_1 a.o (Agent 'y (Core #1)')\n",
        );
        assert_eq!((&log.tasks[&1].ran, &*log.tasks[&1].words), (&Ran::On("y".into()), &b""[..]));
    }

    #[test]
    fn a_prefix_before_each_line_is_understood_too() {
        let (log, _) = read("@dtlto_1 a.o (Agent 'x (Core #1)')\n@dtlto_1 a.o: error: no\n");
        assert_eq!(log.tasks[&1].words, b"a.o: error: no\n");
        assert_eq!(log.tasks[&1].ran, Ran::On("x".into()));
    }

    #[test]
    fn what_looks_like_a_prefix_and_is_none_is_a_tasks_words() {
        let (log, seen) = read("@dtlto_1 a.o\n@dtlto_x y\n@dtlto_\n");
        assert_eq!((seen, &*log.tasks[&1].words), (vec![1], &b"@dtlto_x y\n@dtlto_\n"[..]));
    }

    #[test]
    fn words_keep_their_encoding() {
        let mut log = Log::new("");
        log.push(b"@dtlto_1 a\n\x84\xff{{xgTaskID=1}}!\n", &mut |_| ());
        assert_eq!(log.tasks[&1].words, b"\x84\xff!\n");
    }

    #[test]
    fn a_flood_is_not_kept() {
        let mut log = Log::new("");
        log.push(b"@dtlto_1 a\n", &mut |_| ());
        for _ in 0..100 {
            log.push(&[b'x'; 64 << 10], &mut |_| ());
            log.push(b"short\n", &mut |_| ());
            log.push(&[&[b'y'; 1000][..], b"\n"].concat(), &mut |_| ());
        }
        assert!(log.tasks[&1].words.len() <= WORDS_LIMIT && log.line.len() <= LINE_LIMIT);
    }
}
