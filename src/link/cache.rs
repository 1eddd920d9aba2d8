//! What a link needs before it can use a cache: the tool, keys, a folder. Without any of it the link goes on without
//! the cache. It does not know what the cache is asked for.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Error, bail};

use super::Link;
use crate::attempt::Setup;
use crate::bundle::Library;
use crate::cache::client::OPEN_TIME;
use crate::cache::key::Keys;
use crate::cache::last::Last;
use crate::cache::{self, About, Client, Kind, Mode, Opener};
use crate::cli::{self, Cache, CacheMode, Options};
use crate::parcel;
use crate::plan::Plan;
use crate::process::Groups;
use crate::report::Reporter;
use crate::report::stats::utc;
use crate::run::{self, Jobs};
use crate::toolchain::Toolchain;

/// The cache that the options name.
fn kind(options: &Options) -> Option<Kind> {
    Kind::of(options.cache)
}

/// Refuses a cache before itself, and where it cannot be.
///
/// # Errors
/// The adapter is the cache, or the system has none.
pub(super) fn check(options: &Options) -> anyhow::Result<()> {
    kind(options).map_or(Ok(()), Kind::fits_here)?;
    if options.cache == Cache::Sccache && options.adapter == Kind::Sccache.to_string() {
        bail!("--cache=sccache before --adapter=sccache asks sccache twice: leave out --cache");
    }
    Ok(())
}

impl Link<'_> {
    /// The cache's name in `--stats`.
    pub(super) fn cache_name(&self) -> String {
        kind(&self.request.options).map_or("none".into(), |kind| kind.to_string())
    }

    /// The link is meant to have a cache.
    pub(super) fn wants_cache(&self) -> bool {
        kind(&self.request.options).is_some()
    }

    /// What jobs are called in the cache, if there is to be one.
    pub(super) fn keys(
        &self,
        toolchain: Result<Toolchain, String>,
        library: Arc<Library>,
    ) -> Option<Result<Keys, String>> {
        let salt = self.request.options.cache_salt.as_deref().unwrap_or_default();
        let made = |toolchain| Keys::new(toolchain, library, salt);
        self.wants_cache().then(|| toolchain.map(made))
    }

    /// The cache that the run asks and feeds; none, with a notice, if it cannot be used.
    pub(super) fn cache(
        &self,
        setup: &Setup,
        keys: Result<Keys, String>,
        groups: &Arc<Groups>,
        reporter: &mut Reporter,
    ) -> Option<run::Use> {
        let kind = kind(&self.request.options)?;
        let made = keys.map_err(Error::msg).and_then(|keys| self.usage(kind, setup, keys, groups));
        let tell = |error| reporter.notice(&format!("{kind} is not used: {error:#}"));
        made.map_err(tell).ok()
    }

    fn usage(
        &self,
        kind: Kind,
        setup: &Setup,
        keys: Keys,
        groups: &Arc<Groups>,
    ) -> anyhow::Result<run::Use> {
        let options = &self.request.options;
        let tool = cli::find_program(&kind.to_string())?;
        let folder = setup.scratch.cache().context("the current folder has no name")?;
        let private = folder.join("tool");
        fs::create_dir_all(&private).with_context(|| private.display().to_string())?;
        let (_, host) = parcel::claims(None);
        let opener = self.opener(kind, tool, private, groups.clone());
        let client = Client::new(opener, keys, setup.plan.file.jobs.len(), folder);
        let mode = match options.cache_mode {
            CacheMode::Read => Mode { reads: true, writes: false },
            CacheMode::Write => Mode { reads: false, writes: true },
            CacheMode::Readwrite => Mode { reads: true, writes: true },
        };
        Ok(run::Use { client, name: kind.to_string(), mode, feed: options.cache_feed, host })
    }

    /// Keeps what the cache was good for, for the doctor.
    pub(super) fn remember_cache(&self, plan: &Plan, jobs: &Jobs) {
        let kept = self.request.environment.cache.as_deref();
        let (Some(kept), Some(kind), Some(caching)) =
            (kept, kind(&self.request.options), jobs.caching)
        else {
            return;
        };
        let output = plan.file.linker_output.to_string();
        let jobs = plan.file.jobs.len();
        Last { output, started: utc(self.started), jobs, caching }.keep(kept, kind);
    }

    fn opener(&self, kind: Kind, tool: PathBuf, private: PathBuf, groups: Arc<Groups>) -> Opener {
        let environment = self.request.environment;
        let (kept, environment) = (environment.cache.clone(), environment.caches.clone());
        Box::new(move || {
            let about = About {
                tool: tool.clone(),
                private: private.clone(),
                kept: kept.clone(),
                environment: environment.clone(),
                groups: groups.clone(),
                deadline: Instant::now() + OPEN_TIME,
            };
            cache::open(kind, &about)
        })
    }
}
