//! Progress for logs: a line now and then.

use std::time::Duration;

use super::{Show, View, duration, write_stderr};

/// Few lines: a link of an hour prints 120 of them.
const INTERVAL: Duration = Duration::from_secs(30);

pub(super) struct Plain;

impl Show for Plain {
    fn update(&mut self, view: &View<'_>) {
        write_stderr(format!("dtlto-bridge: {}\n", text(view)).as_bytes());
    }

    fn interval(&self) -> Duration {
        INTERVAL
    }
}

/// `31/71 done, 8 on the farm, 2 here, 12.0 s; longest: valueflow.o for 11.2 s`
pub(super) fn text(view: &View<'_>) -> String {
    let mut text = format!("{}/{} done", view.done, view.total);
    if view.farm > 0 {
        text += &format!(", {} on the farm", view.farm);
    }
    text += &format!(", {} here, {}", view.local, duration(view.elapsed));
    if let Some((module, age)) = view.longest {
        text += &format!("; longest: {module} for {}", duration(age));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is() {
        let second = Duration::from_secs(1);
        let mut view = View {
            done: 31,
            total: 71,
            farm: 0,
            local: 2,
            elapsed: 12 * second,
            longest: Some(("o/valueflow.o", 11 * second)),
        };
        assert_eq!(text(&view), "31/71 done, 2 here, 12.0 s; longest: o/valueflow.o for 11.0 s");
        view.farm = 8;
        view.longest = None;
        assert_eq!(text(&view), "31/71 done, 8 on the farm, 2 here, 12.0 s");
    }
}
