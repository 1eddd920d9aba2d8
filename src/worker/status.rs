//! For the owner of a host: would its worker take jobs, with which settings, and what has it done? It takes
//! no job itself.

use std::fmt::Write;
use std::time::Duration;

use anyhow::ensure;

use super::compiler::Compilers;
use super::confined::Confined;
use super::log::Log;
use super::memory::Memory;
use super::sandbox::{self, Rules};
use super::settings::{Allowed, Found, Landlock};
use crate::attempt::describe as describe_end;
use crate::cli::WorkerVariables;
use crate::exit::Exit;
use crate::process::Groups;
use crate::report;
use crate::toolchain::is_multicall;

/// What clang says of itself.
const BANNER: &[u8] = b"clang version ";
/// The daemon waits for a minute.
const VERIFIED: Duration = Duration::from_secs(40);

/// Prints whether this worker would take jobs; exit 4 if not.
pub(super) fn check(variables: &WorkerVariables) -> Exit {
    let mut text = String::new();
    let ready = looked_at(variables, &mut text);
    let verdict = match &ready {
        Ok(()) => "this worker takes jobs".to_owned(),
        Err(error) => format!("this worker refuses all jobs: {error:#}"),
    };
    report::write_stdout(&format!("{text}{verdict}\n"));
    if ready.is_ok() { Exit::Ok } else { Exit::Farm }
}

/// Prints the totals of the log, and what is in force.
pub(super) fn status(variables: &WorkerVariables) -> Exit {
    let found = super::find_settings(variables);
    let totals = found.and_then(|found| {
        let log = Log::new(found.settings.log.as_deref(), found.scratch(variables)?.path());
        Ok(log.totals()?)
    });
    let text = match totals {
        Ok(totals) => {
            let results: Vec<_> =
                totals.results.iter().map(|(result, count)| format!("{count} {result}")).collect();
            format!(
                "{} requests since {}: {}\n{} bytes in, {} bytes out; {} ms for a job that ran, on average; \
                 peak of memory {} MiB\n",
                totals.requests,
                totals.since,
                results.join(", "),
                totals.bytes_in,
                totals.bytes_out,
                totals.mean_ms(),
                totals.peak_kb >> 10
            )
        }
        Err(error) => format!("no totals: {error:#}\n"),
    };
    report::write_stdout(&text);
    check(variables)
}

/// Tells icecream's daemon whether its environment works: the compiler in it is really run. Quick: the daemon does
/// nothing else meanwhile, so nothing is compared.
pub(super) fn verify(variables: &WorkerVariables) -> Exit {
    match verified(variables) {
        Ok(()) => Exit::Ok,
        Err(error) => {
            report::write_stderr(format!("dtlto-bridge: environment: {error:#}\n").as_bytes());
            Exit::Farm
        }
    }
}

fn verified(variables: &WorkerVariables) -> anyhow::Result<()> {
    let found = super::find_settings(variables)?;
    let scratch = found.scratch(variables)?;
    for allowed in &found.settings.compilers {
        let program = allowed.path();
        let word = is_multicall(program).then_some("clang");
        let confined = Confined {
            program: program.to_owned(),
            name: program.into(),
            args: word.into_iter().chain(["--version"]).map(str::to_owned).collect(),
            env: found.compiler_variables(scratch.path(), variables),
            folder: scratch.path().to_owned(),
            memory: None,
            file_size: 0,
            time: VERIFIED,
            printed: 4096,
        };
        let ended = Groups::new(None).run_confined(&confined, || Ok(()))?;
        let said = String::from_utf8_lossy(&ended.stderr);
        let is_clang = ended.stdout.windows(BANNER.len()).any(|part| part == BANNER);
        ensure!(
            ended.status.success() && is_clang,
            "{} --version {}: {}",
            program.display(),
            describe_end(ended.status),
            said.trim()
        );
    }
    Ok(())
}

fn looked_at(variables: &WorkerVariables, text: &mut String) -> anyhow::Result<()> {
    let found = super::find_settings(variables)?;
    let scratch = found.scratch(variables)?;
    let log = match Log::new(found.settings.log.as_deref(), scratch.path()) {
        Log::File(path) => path.display().to_string(),
        Log::Syslog => "the system's".to_owned(),
    };
    let mut line = |name: &str, value: &str| {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{name:9} {value}");
    };
    line("settings", &found.file.display().to_string());
    line("scratch", &scratch.path().display().to_string());
    line("log", &log);
    line("limits", &limits(&found));
    let need = if found.landlock() == Landlock::Require { "required" } else { "used if there" };
    match found.store() {
        Ok(None) => {}
        Ok(Some(store)) => {
            let [used, limit] = <[u64; 2]>::from(store.usage()).map(|bytes| bytes >> 20);
            let path = store.path().display();
            line("store", &format!("{path}: {used} of {limit} MiB used"));
        }
        Err(error) => line("store", &format!("CANNOT BE USED, jobs run without it: {error:#}")),
    }
    line("landlock", &format!("{need}; {}", sandbox::describe()));
    let home = scratch.path();
    let own = found.compiler_variables(home, variables);
    let compilers = Compilers { found: &found, memory: home, variables: &own };
    let mut usable = 0;
    for allowed in &found.settings.compilers {
        let about = describe(&compilers, allowed);
        usable += usize::from(about.is_ok());
        let about = about.unwrap_or_else(|error| format!("CANNOT BE USED: {error:#}"));
        line("compiler", &format!("{}: {about}", allowed.path().display()));
    }
    sandbox::prepare(&Rules::default(), found.landlock())?;
    anyhow::ensure!(usable > 0, "no compiler can be used");
    Ok(())
}

fn describe(compilers: &Compilers<'_>, allowed: &Allowed) -> anyhow::Result<String> {
    match allowed {
        Allowed::Clang(path) => {
            let toolchain = compilers.identify(path, &[], false)?;
            let identity = toolchain.identity;
            let class = identity.parts.get(crate::toolchain::MATH_CLASS);
            let class = class.map_or("unknown", String::as_str);
            Ok(format!("{}; code {}; math class {class}", identity.version, &identity.code[..16]))
        }
        Allowed::Program(program) => super::compiler::check_bytes(program)
            .map(|digest| format!("a program allowed by its bytes, blake3 {}", &digest[..16])),
    }
}

fn limits(found: &Found) -> String {
    let memory = Memory::look();
    let limits = &found.settings.limits;
    let total = limits.total_memory.map_or(memory.share(), |size| size.0);
    let each = limits.memory.map_or(total, |size| size.0);
    format!(
        "memory {} MiB a job, {} MiB all jobs ({} MiB are free now); {} s; {} MiB an output",
        each >> 20,
        total >> 20,
        memory.available >> 20,
        found.time().as_secs(),
        found.output() >> 20
    )
}
