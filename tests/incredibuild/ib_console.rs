//! A stand-in for Incredibuild's ib_console on Linux, for tests: it runs a command as it is, after a strict look at its own
//! options and at the profile, and tells the processes of the command whether it would have sent them away.
//!
//! Documented or seen in public scripts: the options, the types of processes, where a profile is looked for, 255 and its
//! words. Reconstructed: both root elements are taken; an unknown option is refused, which the real one is said not to do.
//! Simplified: nothing is sent away, and the command is a child, not put in our place.
//!
//! `FAKE_IB` is the folder in which it writes `wrapped`, a line a call; `FAKE_IB_CONSOLE` is a fault: `coordinator`, `deaf`
//! (it does not run the command and exits with 0), `killed` (it ends the command in the middle).

#![allow(clippy::disallowed_methods, clippy::print_stdout, clippy::unwrap_used, clippy::exit)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

use quick_xml::XmlVersion;
use quick_xml::events::Event;
use quick_xml::reader::Reader;

const FLAGS: [&str; 13] = [
    "-f",
    "--force-remote",
    "-d1",
    "--alternate",
    "--standalone",
    "--no-monitor",
    "--ib-quiet",
    "--check-license",
    "--version",
    "--help",
    "--ib-crash",
    "--build-cache-local-shared",
    "--build-cache-report-all-miss",
];
const VALUES: [&str; 4] = ["-p", "-c", "--nice", "--debug"];
const LONG_VALUES: [&str; 6] = [
    "--profile=",
    "--caption=",
    "--nice=",
    "--debug=",
    "--build-cache-basedir=",
    "--build-cache-local-logfile=",
];
const TYPES: [&str; 5] = [
    "intercepted",
    "static_intercepted",
    "static_intercepted_fileops",
    "allow_remote",
    "local_only",
];

fn fail(code: i32, words: &str) -> ! {
    println!("{words}");
    exit(code)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut profile = None;
    let mut at = 0;
    while let Some(option) = arguments.get(at).filter(|argument| argument.starts_with('-')) {
        at += 1;
        if option == "--" {
            break;
        }
        if VALUES.contains(&&**option) {
            let value =
                arguments.get(at).unwrap_or_else(|| fail(1, "usage: an option has no value"));
            if option == "-p" {
                profile = Some(value.clone());
            }
            at += 1;
        } else if let Some(value) = option.strip_prefix("--profile=") {
            profile = Some(value.to_owned());
        } else if !FLAGS.contains(&&**option)
            && !LONG_VALUES.iter().any(|known| option.starts_with(known))
        {
            fail(1, &format!("usage: ib_console [options] [--] command; unknown: {option}"));
        }
    }
    let fault = std::env::var("FAKE_IB_CONSOLE").unwrap_or_default();
    if fault == "coordinator" {
        fail(255, "Cannot access coordinator...Please start incredibuild_coordinator service.");
    }
    if arguments.iter().any(|argument| argument == "--check-license") {
        return println!("License is valid");
    }
    let command = &arguments[at..];
    let Some((program, rest)) = command.split_first() else { fail(1, "usage: no command") };
    let types = profile_types(profile.as_deref()).unwrap_or_else(|words| fail(1, &words));
    let name = Path::new(program).file_name().unwrap().to_string_lossy().into_owned();
    let intercepted = types.get(&name).is_some_and(|kind| kind.contains("intercepted"));
    let remote: Vec<_> =
        types.iter().filter(|(_, kind)| *kind == "allow_remote").map(|(n, _)| &**n).collect();
    let folder = PathBuf::from(std::env::var("FAKE_IB").expect("FAKE_IB names a folder"));
    let mut log = File::options().create(true).append(true).open(folder.join("wrapped")).unwrap();
    log.write_all(format!("{name} {intercepted}\t{}\n", arguments.join("\t")).as_bytes()).unwrap();
    if fault == "deaf" {
        return;
    }
    let remote = if intercepted { remote.join(":") } else { String::new() };
    let mut child = Command::new(program).args(rest).env("FAKE_IB_REMOTE", remote).spawn();
    if let (Ok(child), "killed") = (&mut child, &*fault) {
        std::thread::sleep(std::time::Duration::from_millis(300));
        child.kill().unwrap();
    }
    let status = child.and_then(|mut child| child.wait());
    let status = status.unwrap_or_else(|error| fail(127, &format!("{program}: {error}")));
    exit(status.code().unwrap_or(128))
}

/// The types of processes by their names: what is in force, and on top of it what `--profile` names.
fn profile_types(named: Option<&str>) -> Result<BTreeMap<String, String>, String> {
    let mut types: BTreeMap<String, String> = [
        ("make", "intercepted"),
        ("cargo", "intercepted"),
        ("gcc", "allow_remote"),
        ("clang", "allow_remote"),
    ]
    .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
    .into();
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".ib/ib_profile.xml"));
    let in_force = [Some(PathBuf::from("ib_profile.xml")), home];
    let in_force = in_force.into_iter().flatten().find(|path| path.is_file());
    for path in in_force.into_iter().chain(named.map(PathBuf::from)) {
        let text =
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        read(&text, &mut types).map_err(|words| format!("{}: {words}", path.display()))?;
    }
    Ok(types)
}

fn read(text: &str, types: &mut BTreeMap<String, String>) -> Result<(), String> {
    let mut reader = Reader::from_str(text);
    loop {
        let element = match reader.read_event().map_err(|error| error.to_string())? {
            Event::Start(element) | Event::Empty(element) => element,
            Event::Eof => return Ok(()),
            _ => continue,
        };
        let name = element.name().as_ref().to_owned();
        let mut found = BTreeMap::new();
        for attribute in element.attributes() {
            let attribute = attribute.map_err(|error| error.to_string())?;
            let value = attribute.normalized_value(XmlVersion::Implicit1_0);
            let value = value.map_err(|error| error.to_string())?.into_owned();
            found.insert(attribute.key.as_ref().to_owned(), value);
        }
        match &*name {
            "ib_profile" | "processes" | "ib_cache" | "globals" => {}
            "process" => {
                let kind = found.get("type").ok_or("a process has no type")?;
                let process = found.get("filename").ok_or("a process has no filename")?;
                let wrong = !TYPES.contains(&&**kind)
                    || found.contains_key("exclude_args") && kind != "local_only"
                    || found.contains_key("include_args") && kind != "intercepted";
                if wrong {
                    return Err(format!("process {process}: {found:?}"));
                }
                types.insert(process.clone(), kind.clone());
            }
            other => return Err(format!("unknown element {other}")),
        }
    }
}
