//! What the last link of this user had of a cache, kept in one small file for the doctor. It is a help and decides nothing:
//! a file that cannot be read or written is no file.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Kind;
use crate::parcel::one_line;
use crate::report::file;
use crate::report::stats::Caching;

/// Bytes; a larger file is not ours.
const LIMIT: u64 = 64 << 10;

/// A link that had a cache.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Last {
    /// What it made.
    pub output: String,
    /// When it began, in UTC.
    pub started: String,
    /// Its jobs.
    pub jobs: usize,
    /// What the cache was good for.
    pub caching: Caching,
}

fn path(kept: &Path, kind: Kind) -> PathBuf {
    kept.join(format!("last-{kind}.json"))
}

impl Last {
    /// Keeps it in `kept`, the bridge's own folder in the user's cache folder.
    pub fn keep(&self, kept: &Path, kind: Kind) {
        // Nothing is lost without it.
        let _ = serde_json::to_vec(self).map(|text| file::write(&path(kept, kind), &text));
    }

    /// The one that was kept last.
    pub fn read(kept: &Path, kind: Kind) -> Option<Self> {
        let mut text = Vec::new();
        File::open(path(kept, kind)).ok()?.take(LIMIT).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }
}

/// `app at 2026-11-30T20:00:00Z: 69 of 71 jobs hit, 2 were stored`
impl fmt::Display for Last {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Last { output, started, jobs, caching } = self;
        let (output, started) = (one_line(output), one_line(started));
        let Caching { hits, stored, not_stored, .. } = caching;
        write!(f, "{output} at {started}: {hits} of {jobs} jobs hit, {stored} were stored")?;
        if *not_stored > 0 {
            write!(f, ", {not_stored} were not")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_by_kind_and_harm_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("not/there/yet");
        let text = str::to_owned;
        let caching = Caching { hits: 69, stored: 1, not_stored: 1, ..Caching::default() };
        let last = Last { output: text("a\u{1b}[2J"), started: text("now"), jobs: 71, caching };
        assert_eq!(Last::read(&kept, Kind::Ccache), None);
        last.keep(&kept, Kind::Ccache);
        let found = Last::read(&kept, Kind::Ccache).unwrap();
        assert_eq!(found, last);
        let shown = found.to_string();
        assert!(shown.ends_with("at now: 69 of 71 jobs hit, 1 were stored, 1 were not"), "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown}");
        assert_eq!(Last::read(&kept, Kind::Sccache), None);
        std::fs::write(path(&kept, Kind::Ccache), "{").unwrap();
        assert_eq!(Last::read(&kept, Kind::Ccache), None);
    }
}
