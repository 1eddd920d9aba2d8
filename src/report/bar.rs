//! Progress for people: one line on a terminal. The only place that knows the progress library.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{Show, View, plain, write_stderr};

const INTERVAL: Duration = Duration::from_millis(100);
/// A module that runs longer than this is named.
const LONG: Duration = Duration::from_secs(5);

pub(super) struct Bar(ProgressBar);

impl Bar {
    pub(super) fn new(colour: bool) -> Self {
        let template = if colour { "{bar:24.green} {wide_msg}" } else { "{bar:24} {wide_msg}" };
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Bar(bar)
    }
}

impl Show for Bar {
    fn update(&mut self, view: &View<'_>) {
        let longest = view.longest.filter(|(_, age)| *age >= LONG);
        self.0.set_length(view.total as u64);
        self.0.set_message(plain::text(&View { longest, ..view.clone() }));
        self.0.set_position(view.done as u64);
    }

    fn print(&mut self, text: &[u8]) {
        self.0.suspend(|| write_stderr(text));
    }

    fn finish(&mut self) {
        self.0.finish_and_clear();
    }

    fn interval(&self) -> Duration {
        INTERVAL
    }
}
