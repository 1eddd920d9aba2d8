//! The table of contents:
//!
//! * a link, what LLD runs: `link::link` reads the job file, plans, checks, runs the jobs and reports;
//! * `adapters`, `doctor`, `icecc-env`, `replay`: for people;
//! * `worker`: the far half, told apart first of all;
//! * `guard`: the helper that ends a link's processes if the bridge is killed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use dtlto_bridge::cli::{self, Environment, Options, Task};
use dtlto_bridge::exit::{Exit, Failure};
use dtlto_bridge::link::{Ending, Request, link};
use dtlto_bridge::process::{guard, slots, watch};
#[cfg(unix)]
use dtlto_bridge::worker;
use dtlto_bridge::{doctor, report, save};

fn main() -> ExitCode {
    // The panic has been printed by then, and the guard, which hears no farewell, tidies up.
    std::panic::catch_unwind(run).unwrap_or_else(|_| code(Exit::Bug))
}

fn run() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    #[cfg(unix)]
    if let Some(call) = worker::called(&arguments) {
        return code(worker::work(call));
    }
    // Both must see the process as it was started.
    let server = slots::inherited_server();
    let linker = watch::Linker::seen_at_start();
    let own = arguments.get(1..).map(<[OsString]>::to_vec);
    let line = match cli::parse(arguments) {
        Ok(line) => line,
        Err(error) => {
            let _ = error.print();
            return code(if error.use_stderr() { Exit::Usage } else { Exit::Ok });
        }
    };
    let environment = Environment::read();
    let result = match line.task {
        None => {
            let job_file = line.job_file.unwrap_or_default();
            link(Request {
                job_file: &job_file,
                linker: Some(linker),
                server,
                compiler: None,
                arguments: own,
                options: line.options,
                environment: &environment,
            })
        }
        Some(Task::Adapters { names }) => doctor::adapters(&names, &environment),
        Some(Task::Doctor { adapter, compiler, cache }) => {
            doctor::doctor(&adapter, compiler.as_deref(), cache, &environment)
        }
        Some(Task::IceccEnv { compiler, env_salt, check }) => {
            let wanted = doctor::EnvironmentWanted {
                compiler: compiler.as_deref(),
                salt: env_salt.as_deref().unwrap_or_default(),
                check: check.as_deref(),
            };
            doctor::icecc_env(&wanted, &environment)
        }
        Some(Task::Replay { folder, compiler, options }) => {
            replay(&folder, compiler, *options, &environment)
        }
        // Where there are workers, all its other forms were dealt with above.
        Some(Task::Worker { .. }) => {
            Err(cli::usage(anyhow::anyhow!("the worker runs on Linux: install it on a host there")))
        }
        Some(Task::Guard { mark }) => {
            guard::serve(&mark, std::io::stdin().lock());
            Ok(Ending { exit: Exit::Ok, signal: None })
        }
    };
    match result {
        Ok(Ending { exit, signal }) => {
            if let Some(signal) = signal {
                watch::raise_again(signal);
            }
            code(exit)
        }
        Err(failure) => {
            report::write_stderr(format!("dtlto-bridge: error: {failure}\n").as_bytes());
            code(failure.exit)
        }
    }
}

fn code(exit: Exit) -> ExitCode {
    ExitCode::from(exit as u8)
}

/// Runs the jobs of a saved link in its folder, and compares.
fn replay(
    folder: &Path,
    compiler: Option<String>,
    mut options: Options,
    environment: &Environment,
) -> Result<Ending, Failure> {
    let absolute =
        |path: &Path| std::path::absolute(path).map_err(|error| cli::usage(error.into()));
    let Options { stats, trace, save, scratch, .. } = &mut options;
    for path in [stats, trace, save, scratch].into_iter().flatten() {
        *path = absolute(path)?;
    }
    if options.adapter.contains(std::path::is_separator) || options.adapter.ends_with(".json") {
        options.adapter = absolute(Path::new(&options.adapter))?.to_string_lossy().into_owned();
    }
    let entered = std::env::set_current_dir(folder).with_context(|| folder.display().to_string());
    entered.map_err(|error| Failure::new(Exit::JobFile, error))?;
    let job_file = PathBuf::from(save::JOB_FILE);
    let ending = link(Request {
        job_file: &job_file,
        linker: None,
        server: None,
        compiler,
        arguments: None,
        options,
        environment,
    })?;
    if ending.exit != Exit::Ok {
        return Ok(ending);
    }
    let (line, same) =
        save::compare(Path::new(".")).map_err(|error| Failure::new(Exit::JobFile, error))?;
    report::write_stdout(&format!("{line}\n"));
    Ok(Ending { exit: if same { Exit::Ok } else { Exit::JobFailed }, signal: None })
}
