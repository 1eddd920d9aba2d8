//! `--trace`: a timeline in Chrome's trace event format, one row a slot. It only writes down what it is
//! told.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The events of a link.
#[derive(Debug)]
pub struct Trace {
    start: Instant,
    events: Vec<Value>,
    rows: Vec<(&'static str, usize)>,
}

impl Trace {
    /// Nothing has happened yet; times count from `start`.
    pub fn new(start: Instant) -> Self {
        Trace { start, events: Vec::new(), rows: Vec::new() }
    }

    /// An attempt at a job, or a call of the cache, in row `slot` of its place.
    pub fn attempt(
        &mut self,
        module: &str,
        (place, slot): (&'static str, usize),
        began: Instant,
        took: Duration,
        result: &str,
    ) {
        let row = self.row(place, slot);
        let at = began.saturating_duration_since(self.start);
        self.events.push(json!({
            "name": module, "cat": place, "ph": "X", "pid": 1, "tid": row,
            "ts": micros(at), "dur": micros(took), "args": {"result": result},
        }));
    }

    fn row(&mut self, place: &'static str, slot: usize) -> usize {
        let known = self.rows.iter().position(|row| *row == (place, slot));
        known.unwrap_or_else(|| {
            self.rows.push((place, slot));
            let row = self.rows.len() - 1;
            self.events.push(json!({
                "name": "thread_name", "ph": "M", "pid": 1, "tid": row,
                "args": {"name": format!("{place} {slot}")},
            }));
            row
        })
    }

    /// The file's content.
    pub fn finish(&self) -> Vec<u8> {
        json!({"traceEvents": self.events, "displayTimeUnit": "ms"}).to_string().into_bytes()
    }
}

/// The unit of the format.
fn micros(time: Duration) -> u64 {
    time.as_micros().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_has_a_row_with_a_name() {
        let start = Instant::now();
        let mut trace = Trace::new(start);
        for slot in [0, 1, 0] {
            let ms = Duration::from_millis(5);
            trace.attempt("a.o", ("local", slot), start + ms, ms, "done");
        }
        let value: Value = serde_json::from_slice(&trace.finish()).unwrap();
        let events = value["traceEvents"].as_array().unwrap();
        let rows: Vec<u64> = events.iter().filter_map(|e| e["tid"].as_u64()).collect();
        assert_eq!(rows, [0, 0, 1, 1, 0]);
        assert_eq!(events[0]["args"]["name"], "local 0");
        assert_eq!((&events[1]["ts"], &events[1]["dur"]), (&json!(5000), &json!(5000)));
    }
}
