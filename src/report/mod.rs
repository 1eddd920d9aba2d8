//! The only place that prints, always whole lines: on standard error, and for sub-commands on standard
//! output. A stream that is closed or full loses the text, never the link. It decides nothing.

mod bar;
pub mod file;
mod plain;
pub mod stats;
pub mod trace;

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::cli::{Environment, Options, Progress};

/// How far a link is.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// Jobs that have their objects.
    pub done: usize,
    /// All jobs.
    pub total: usize,
    /// Running on the farm.
    pub farm: usize,
    /// Running on this machine.
    pub local: usize,
    /// Since the link began.
    pub elapsed: Duration,
    /// The running job that started first, and its age.
    pub longest: Option<(&'a str, Duration)>,
}

/// A way to show progress.
trait Show {
    /// Shows how far it is.
    fn update(&mut self, view: &View<'_>);
    /// Prints text of whole lines, undisturbed by what `update` draws.
    fn print(&mut self, text: &[u8]) {
        write_stderr(text);
    }
    /// Takes away what `update` drew.
    fn finish(&mut self) {}
    /// The pause between two updates.
    fn interval(&self) -> Duration;
}

struct Nothing;

impl Show for Nothing {
    fn update(&mut self, _: &View<'_>) {}
    fn interval(&self) -> Duration {
        Duration::from_secs(3600)
    }
}

/// Prints what a link has to say.
pub struct Reporter {
    show: Box<dyn Show>,
    quiet: bool,
    verbose: bool,
    updated: Option<Instant>,
    failures_are_others: bool,
}

impl Reporter {
    /// Chooses the way to show progress.
    pub fn new(options: &Options, environment: &Environment) -> Self {
        let terminal = std::io::stderr().is_terminal() && !environment.dumb_terminal;
        let progress = match options.progress {
            _ if options.quiet => Progress::None,
            Progress::Auto if terminal => Progress::Bar,
            Progress::Auto => Progress::Plain,
            chosen => chosen,
        };
        let show: Box<dyn Show> = match progress {
            Progress::Bar => Box::new(bar::Bar::new(!environment.no_color)),
            Progress::None => Box::new(Nothing),
            Progress::Plain | Progress::Auto => Box::new(plain::Plain),
        };
        Reporter {
            show,
            quiet: options.quiet,
            verbose: options.verbose,
            updated: None,
            failures_are_others: false,
        }
    }

    /// Something that users should know although the link goes on.
    pub fn notice(&mut self, text: &str) {
        if !self.quiet {
            self.line(text);
        }
    }

    /// A detail for `-v`.
    pub fn detail(&mut self, text: &str) {
        if self.verbose {
            self.line(text);
        }
    }

    /// A detail that costs something to put together.
    pub fn detail_with(&mut self, text: impl FnOnce() -> String) {
        if self.verbose {
            self.line(&text());
        }
    }

    /// A failed job is told by somebody else, who tries it again.
    pub fn leave_failures(&mut self) {
        self.failures_are_others = true;
    }

    /// A failed job: what of it, what its compiler printed, and a command that can be pasted into a shell.
    pub fn failed_job(&mut self, text: &str, printed: &[u8], command: &str) {
        if !self.failures_are_others {
            self.error(text);
            self.words(printed);
            self.line(&format!("to repeat it: {command}"));
        }
    }

    /// A failure.
    pub fn error(&mut self, text: &str) {
        self.line(&format!("error: {text}"));
    }

    /// The line that ends a link.
    pub fn summary(&mut self, text: &str) {
        self.show.finish();
        if !self.quiet {
            self.line(text);
        }
    }

    /// What a compiler printed, unchanged.
    pub fn words(&mut self, printed: &[u8]) {
        if !printed.is_empty() {
            let end: &[u8] = if printed.ends_with(b"\n") { b"" } else { b"\n" };
            self.show.print(&[printed, end].concat());
        }
    }

    fn line(&mut self, text: &str) {
        self.show.print(format!("dtlto-bridge: {text}\n").as_bytes());
    }

    /// The time until progress should be shown again.
    pub fn next_update(&self) -> Duration {
        let since = self.updated.map_or(Duration::ZERO, |updated| updated.elapsed());
        self.show.interval().saturating_sub(since)
    }

    /// Shows progress, if it is time to.
    pub fn update<'a>(&mut self, view: impl FnOnce() -> View<'a>) {
        let updated = *self.updated.get_or_insert_with(Instant::now);
        if updated.elapsed() >= self.show.interval() {
            self.show.update(&view());
            self.updated = Some(Instant::now());
        }
    }
}

/// Prints on standard error.
pub fn write_stderr(text: &[u8]) {
    // Nobody could be told of a failure.
    let _ = std::io::stderr().lock().write_all(text);
}

/// Prints on standard output, for sub-commands.
pub fn write_stdout(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

/// `950 ms`, `12.3 s`, `4 min 5 s`.
pub fn duration(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        1..60 => format!("{:.1} s", time.as_secs_f64()),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}
