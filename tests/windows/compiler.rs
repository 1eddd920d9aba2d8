//! Stands in for clang on Windows, where none is at hand: reads a job's inputs, writes a COFF object made of
//! their digests, and fails in all the ways that are asked for. It is also what calls the bridge, or holds a file
//! open. Portable, so that the same program tells on Unix what is to be expected.

#![allow(clippy::disallowed_methods, clippy::print_stderr, clippy::print_stdout)] // a test program
#![allow(clippy::zombie_processes, reason = "one that outlives us is what is tested")]

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

/// `IMAGE_FILE_MACHINE_AMD64`.
const MACHINE: [u8; 2] = 0x8664_u16.to_le_bytes();
/// The length of a COFF header.
const HEADER: usize = 20;

fn main() -> ExitCode {
    let args: Vec<OsString> = env::args_os().skip(1).collect();
    let asked = args.first().and_then(|arg| arg.to_str()).unwrap_or_default();
    match asked {
        // Starts a program as a linker does, and waits for it.
        "call" => ExitCode::from(call(&args[1..])),
        // Holds a file open for some milliseconds, so that nobody can delete it.
        "hold" => hold(&args[1..]),
        "sleep" => sleep(),
        _ => compile(&args),
    }
}

fn call(args: &[OsString]) -> u8 {
    let status = Command::new(&args[0]).args(&args[1..]).status().expect("starts");
    println!("ended with {:#x}", status.code().unwrap_or(-1));
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(255)
}

fn sleep() -> ExitCode {
    thread::sleep(Duration::from_secs(300));
    ExitCode::SUCCESS
}

#[cfg(windows)]
fn hold(args: &[OsString]) -> ExitCode {
    use std::os::windows::fs::OpenOptionsExt;
    // 1: others may read it, and nothing else.
    let held = fs::File::options().read(true).share_mode(1).open(&args[0]).expect("opens");
    fs::write(&args[1], "held").expect("says that it holds it");
    let ms = args[2].to_str().and_then(|ms| ms.parse().ok()).expect("milliseconds");
    thread::sleep(Duration::from_millis(ms));
    drop(held);
    ExitCode::SUCCESS
}

#[cfg(not(windows))]
fn hold(_: &[OsString]) -> ExitCode {
    ExitCode::FAILURE
}

/// What clang is asked for by LLD, and by switches of its own.
#[derive(Default)]
struct Asked {
    inputs: Vec<String>,
    index: String,
    object: String,
    faults: Vec<String>,
}

fn compile(args: &[OsString]) -> ExitCode {
    let given = args.iter().map(|arg| arg.to_str().expect("UTF-8"));
    let args: Vec<String> = given.flat_map(expanded).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    record(&args);
    let mut asked = Asked::default();
    let mut rest = args.iter();
    while let Some(&arg) = rest.next() {
        if let Some(index) = arg.strip_prefix("-fthinlto-index=") {
            asked.index = index.to_owned();
        } else if let Some(fault) = arg.strip_prefix("--fault=") {
            asked.faults.push(fault.to_owned());
        } else if arg == "-o" {
            asked.object = (*rest.next().expect("an object")).to_owned();
        } else if !arg.starts_with('-') {
            asked.inputs.push(arg.to_owned());
        }
    }
    let object = object(&asked);
    let has = |fault: &str| asked.faults.iter().any(|found| found == fault);
    if has("error") {
        eprintln!("{}: error: the stand-in was asked to fail: ä", asked.inputs[0]);
        return ExitCode::FAILURE;
    }
    if has("crash") {
        std::process::abort();
    }
    if has("hang") {
        return sleep();
    }
    if has("slow") {
        thread::sleep(Duration::from_secs(1));
    }
    if has("orphan") {
        let own = env::current_exe().expect("a path");
        Command::new(own).args(["sleep", &asked.object]).spawn().expect("starts");
    }
    if has("flood") {
        let line = [b'x'; 1 << 16];
        (0..400).for_each(|_| std::io::stderr().write_all(&line).expect("prints"));
    }
    if has("warn") {
        eprintln!("{}: warning: a word of the compiler", asked.inputs[0]);
    }
    let length = if has("empty") { 0 } else { object.len() };
    if !has("missing") {
        fs::write(&asked.object, &object[..length]).expect("writes the object");
    }
    ExitCode::SUCCESS
}

/// The arguments in a response file, as clang reads it.
fn expanded(arg: &str) -> Vec<String> {
    let Some(file) = arg.strip_prefix('@') else { return vec![arg.to_owned()] };
    let text = fs::read_to_string(file).expect("a response file");
    let (mut args, mut arg, mut quote) = (Vec::new(), None::<String>, None);
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '"' | '\'' if quote.is_none() => quote = Some(c),
            c if quote == Some(c) => quote = None,
            c if c.is_ascii_whitespace() && quote.is_none() => args.extend(arg.take()),
            '\\' => arg.get_or_insert_default().extend(rest.next()),
            c => arg.get_or_insert_default().push(c),
        }
    }
    args.extend(arg);
    args
}

/// A header, and the digest of each input: the module, its index, and what that names, a file a line.
fn object(asked: &Asked) -> Vec<u8> {
    let mut object = vec![0; HEADER];
    object[..2].copy_from_slice(&MACHINE);
    let index = fs::read(&asked.index).expect("an index");
    let index = String::from_utf8_lossy(&index);
    let modules = asked.inputs.iter().map(String::as_str);
    let mut inputs: Vec<&str> =
        modules.chain([&*asked.index]).chain(index.lines().skip(1)).collect();
    // A real index, which says nothing here, and has other names in a link that runs again elsewhere.
    if asked.faults.iter().any(|fault| fault == "blind") {
        inputs.truncate(asked.inputs.len());
    }
    for input in inputs {
        let content = fs::read(input).unwrap_or_else(|error| panic!("{input}: {error}"));
        object.extend(digest(&content).to_le_bytes());
    }
    // No symbol, and behind them their names, of which only the length is there: a COFF file ends so.
    let symbols = u32::try_from(object.len()).expect("a small object");
    object[8..12].copy_from_slice(&symbols.to_le_bytes());
    object.extend(4_u32.to_le_bytes());
    object
}

/// FNV-1a.
fn digest(bytes: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Leaves the arguments in the folder `STAND_IN_LOG`, an argument a line.
fn record(args: &[&str]) {
    if let Some(folder) = env::var_os("STAND_IN_LOG") {
        let name = format!("{}.txt", std::process::id());
        fs::write(std::path::Path::new(&folder).join(name), args.join("\n")).expect("a log");
    }
}
