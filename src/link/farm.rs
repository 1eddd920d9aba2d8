//! What a link needs before it can use a farm: the compiler's identity, the tripwire, a folder for the tool. It does
//! not know what becomes of jobs there.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::adapter::{Place, Shipping};
use crate::attempt::Setup;
use crate::bundle::{About, Library};
use crate::cache;
use crate::cache::dist::Dist;
use crate::cli::{Environment, Math};
use crate::os;
use crate::parcel::{self, Parcels};
use crate::plan::Plan;
use crate::policy;
use crate::process::Groups;
use crate::toolchain::{self, Identity, Toolchain};

/// sccache's server must be there after this time: it gives its storage up after 10 s.
const SERVER_TIME: Duration = Duration::from_secs(12);

/// Who asks a farm.
pub struct Asker<'a> {
    /// The link's id.
    pub link: &'a str,
    /// Which hosts' mathematics will do.
    pub math: Math,
    /// The environment.
    pub environment: &'a Environment,
}

impl Asker<'_> {
    /// The compiler, looked through; the error says why no job can travel or have a key.
    pub fn toolchain(&self, plan: &Plan, compiler: &Path) -> Result<Toolchain, String> {
        let environment = self.environment;
        let set = |name: &str| environment.shown.contains_key(name);
        if let Some(why) = policy::environment_keeps_home(set) {
            return Err(why);
        }
        let jobs = &plan.file.jobs;
        let args = jobs.first().map_or(&[][..], |job| &job.args);
        let looked = toolchain::Options {
            with_ld_lld: jobs.iter().any(parcel::needs_ld_lld),
            cache_folder: environment.cache.as_deref(),
            math: match self.math {
                Math::Strict => toolchain::Math::Strict,
                Math::Any => toolchain::Math::Any,
            },
            target: args.iter().find_map(|arg| arg.strip_prefix("--target=")),
            no_default_config: args.iter().any(|arg| &**arg == "--no-default-config"),
            variables: &environment.toolchain,
            ..toolchain::Options::default()
        };
        toolchain::identify(compiler, args.first().map(|arg| &**arg), &looked)
            .map_err(|unknown| unknown.to_string())
    }

    /// What bundles share, if the adapter ships any.
    pub fn parcels(
        &self,
        plan: &Plan,
        toolchain: &Toolchain,
        library: &Arc<Library>,
    ) -> Option<Parcels> {
        if plan.adapter.shipping != Shipping::Bundle {
            return None;
        }
        let environment = self.environment;
        let (user, host) = parcel::claims(environment.user.as_deref());
        let about = About {
            link: self.link.to_owned(),
            user,
            host,
            compiler: wanted(&toolchain.identity, self.math),
            environment: Vec::new(),
            time_limit_s: plan.limits.farm_time.as_secs(),
        };
        Some(Parcels::new(&plan.file, toolchain.clone(), library.clone(), about))
    }
}

impl Asker<'_> {
    /// sccache's farm; the error says why it cannot be used.
    pub fn dist(&self, tool: &str, compiler: &str) -> Result<Dist, String> {
        let about = cache::About {
            tool: tool.into(),
            private: "/".into(),
            kept: None,
            environment: self.environment.caches.clone(),
            groups: Groups::new(None),
            deadline: Instant::now() + SERVER_TIME,
        };
        Dist::open(&about, compiler).map_err(|trouble| trouble.to_string())
    }

    /// The variables that the adapter's tool inherits, if not all of them.
    pub fn inherited(&self, plan: &Plan) -> Option<Vec<(String, String)>> {
        let only = plan.adapter.env.only.as_ref()?;
        let value = |name: &String| self.environment.shown.get(name)?.clone();
        Some(only.iter().filter_map(|name| Some((name.clone(), value(name)?))).collect())
    }
}

/// The identity that hosts must have: for `--math any` without the parts about mathematics.
fn wanted(identity: &Identity, math: Math) -> Identity {
    let mut wanted = identity.clone();
    if math == Math::Any {
        wanted.parts.remove(toolchain::MATH_CLASS);
    }
    wanted
}

/// The tripwire comes first on the tool's `PATH`.
pub fn with_path(mut setup: Setup, environment: &Environment) -> Setup {
    if setup.plan.adapter.tripwire.is_some() {
        let path = environment.path.as_deref().unwrap_or("/usr/bin:/bin");
        setup.path = Some(format!("{}:{path}", setup.private));
    }
    setup
}

/// Keeps what a batch tool was given and what it said in a folder of `--save`.
///
/// # Errors
/// They cannot be copied.
pub fn keep_calls(setup: &Setup, saved: &Path) -> anyhow::Result<()> {
    let calls = fs::read_dir(&setup.private).into_iter().flatten().flatten();
    for call in calls.filter(|call| call.file_name().to_string_lossy().starts_with("call")) {
        let into = saved.join("calls").join(call.file_name());
        fs::create_dir_all(&into).with_context(|| into.display().to_string())?;
        for file in fs::read_dir(call.path())?.flatten() {
            fs::copy(file.path(), into.join(file.file_name()))?;
        }
    }
    Ok(())
}

/// Makes the folder for the adapter's tool, and the tripwire in it.
///
/// # Errors
/// They cannot be made.
pub fn prepare_tool(setup: &Setup) -> anyhow::Result<()> {
    if setup.plan.place() == Place::Local {
        return Ok(());
    }
    let folder = Path::new(&setup.private);
    fs::create_dir(folder).with_context(|| folder.display().to_string())?;
    let requests = setup.scratch.requests(&setup.plan.file.linker_output)?;
    fs::create_dir_all(&requests).with_context(|| requests.display().to_string())?;
    if let Some(tripwire) = &setup.plan.adapter.tripwire {
        let path = folder.join(&tripwire.program);
        let text = format!("#!/bin/sh\nexit {}\n", tripwire.code);
        let executable = || os::mode(0o755).map_or(Ok(()), |mode| fs::set_permissions(&path, mode));
        fs::write(&path, text)
            .and_then(|()| executable())
            .with_context(|| path.display().to_string())?;
    }
    Ok(())
}
