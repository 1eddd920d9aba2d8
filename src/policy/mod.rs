//! May this job run on a farm, through a worker? Two allow-lists of options say so: the driver's and LLVM's. The
//! bridge asks before it packs a job, the worker after it has unpacked one, so that both agree.
//! It knows arguments and names only: no file's content (bitcode can be hostile whatever the arguments say), no
//! compiler, and no environment but the names of variables.

mod driver;
mod environment;
mod form;
mod home;
mod mllvm;
#[cfg(test)]
mod tests;

pub use driver::DRIVER;
pub use environment::environment_keeps_home;
pub use form::{Form, Rule, Value};
pub use home::KEPT_HOME;
pub use mllvm::{MLLVM, SPLIT_NUMBERS, SPLIT_SWITCHES};

use crate::jobfile::Job;
use std::fmt;

/// Bytes of all arguments of a job; LLD writes a few hundred.
const MAX_BYTES: usize = 1 << 20;

/// Arguments of a job; LLD writes about twenty.
const MAX_ARGS: usize = 1 << 12;

/// Slots that a job may count as, however many partitions it asks for.
const MAX_SLOTS: u32 = 16;

/// Slots of a split job that leaves the number of partitions to the compiler.
const SPLIT_SLOTS: u32 = 2;

/// The names that a job's arguments may mention: a job file's own before packing, a bundle's after unpacking.
#[derive(Clone, Debug)]
pub struct Named<'a> {
    /// The module to compile.
    pub primary: &'a str,
    /// The index shard.
    pub index: &'a str,
    /// The object.
    pub object: &'a str,
    /// Declared inputs that are neither modules nor index, such as a profile.
    pub other_inputs: Vec<&'a str>,
    /// Declared outputs beside the object.
    pub other_outputs: Vec<&'a str>,
}

impl<'a> From<&'a Job> for Named<'a> {
    fn from(job: &'a Job) -> Self {
        Named {
            primary: &job.primary,
            index: &job.index,
            object: &job.object,
            other_inputs: job.other_inputs.iter().map(|text| &**text).collect(),
            other_outputs: job.other_outputs.iter().map(|text| &**text).collect(),
        }
    }
}

/// What a job that may travel asks of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weight {
    slots: u32,
    needs_ld_lld: bool,
    shows_names: bool,
}

impl Weight {
    /// That of a job without any demands.
    pub fn single() -> Self {
        Weight { slots: 1, needs_ld_lld: false, shows_names: false }
    }

    /// How many slots of a host the job takes: 1, or the partitions of split codegen, at most 16.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Whether clang will start the `ld.lld` beside it, to merge the partitions of split codegen.
    pub fn needs_ld_lld(&self) -> bool {
        self.needs_ld_lld
    }

    /// Whether the object may hold the names and the folder under which it was made, so that renaming changes its
    /// bytes: with `-gsplit-dwarf` the object's own, and for MSVC targets, whose debug information (CodeView) holds
    /// clang's whole command line and working directory unless the modules have none (measured with clang 22).
    pub fn shows_names(&self) -> bool {
        self.shows_names
    }
}

/// Why a job stays here, or why a worker will not run it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The argument at fault, as it stands; empty if one is missing.
    pub option: String,
    /// What is wrong with it.
    pub reason: String,
}

impl Refusal {
    fn new(option: &str, reason: impl Into<String>) -> Self {
        Refusal { option: option.into(), reason: reason.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A worker prints what strangers sent: no control characters, and no more than a line.
        let shown: String = self.option.chars().take(100).flat_map(char::escape_debug).collect();
        match shown.as_str() {
            "" => write!(f, "{}", self.reason),
            shown => write!(f, "`{shown}`: {}", self.reason),
        }
    }
}

impl std::error::Error for Refusal {}

/// Whether a job may run through a worker. `args` is the whole command behind the compiler, and behind the word
/// `clang` where that is the multicall `llvm` program.
pub fn check(args: &[impl AsRef<str>], files: &Named<'_>) -> Result<Weight, Refusal> {
    let args: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
    if args.len() > MAX_ARGS || args.iter().map(|arg| arg.len()).sum::<usize>() > MAX_BYTES {
        return Err(Refusal::new("", "more arguments than any job of a linker has"));
    }
    let mut reader = Reader { files, rest: args.iter(), seen: Seen::default() };
    while let Some(arg) = reader.rest.next() {
        reader.argument(arg)?;
    }
    reader.seen.verdict()
}

/// What has been met so far.
#[derive(Default)]
struct Seen {
    primary: bool,
    index: bool,
    object: bool,
    compile: bool,
    split: bool,
    partitions: Option<u32>,
    shows_names: bool,
}

struct Reader<'a> {
    files: &'a Named<'a>,
    rest: std::slice::Iter<'a, &'a str>,
    seen: Seen,
}

impl<'a> Reader<'a> {
    fn argument(&mut self, arg: &'a str) -> Result<(), Refusal> {
        if let Some(reason) = misshapen(arg) {
            return Err(Refusal::new(arg, reason));
        }
        let files = self.files;
        match arg {
            "-o" => {
                let name = self.value(arg)?;
                once(&mut self.seen.object, arg, name, files.object, "the job's object")
            }
            "-mllvm" => {
                let option = self.value(arg)?;
                self.llvm(option)
            }
            "-gsplit-dwarf" | "-gsplit-dwarf=split" => self.split_dwarf(arg),
            _ if !arg.starts_with(['-', '@']) => {
                once(&mut self.seen.primary, arg, arg, files.primary, "the job's module")
            }
            _ => {
                if let Some(name) = arg.strip_prefix("-fthinlto-index=") {
                    return once(&mut self.seen.index, arg, name, files.index, "the job's index");
                }
                match arg.strip_prefix("-mllvm=") {
                    Some(option) => self.llvm(option),
                    None => self.driver(arg),
                }
            }
        }
    }

    /// The argument behind `option`.
    fn value(&mut self, option: &str) -> Result<&'a str, Refusal> {
        let value = self.rest.next();
        let value =
            value.ok_or_else(|| Refusal::new(option, "it ends the command and needs a value"))?;
        match misshapen(value) {
            Some(reason) => Err(Refusal::new(option, format!("its value: {reason}"))),
            None => Ok(value),
        }
    }

    /// An option of the driver.
    fn driver(&mut self, arg: &'a str) -> Result<(), Refusal> {
        let mut flaw = None;
        for (form, names) in DRIVER {
            for rest in names.iter().filter_map(|name| form::after(name, arg)) {
                let (value, text) = match *form {
                    Form::Flag if rest.is_empty() => {
                        self.seen.compile |= arg == "-c";
                        return Ok(());
                    }
                    Form::Joined(value) if !rest.is_empty() => (value, rest),
                    Form::Separate(value) if rest.is_empty() => (value, self.value(arg)?),
                    _ => continue,
                };
                match value.flaw(text, &self.files.other_inputs) {
                    None => {
                        let msvc = text.contains("-windows") && !text.contains("-gnu");
                        self.seen.shows_names |= msvc && matches!(value, Value::Triple);
                        return Ok(());
                    }
                    Some(reason) => flaw = flaw.or(Some(reason)),
                }
            }
        }
        let reason = home::reason(arg)
            .map(str::to_owned)
            .or(flaw)
            .unwrap_or_else(|| "it is not on the list of options that may run elsewhere".into());
        Err(Refusal::new(arg, reason))
    }

    /// An option of LLVM.
    fn llvm(&mut self, option: &str) -> Result<(), Refusal> {
        let refuse = |reason: String| Err(Refusal::new(&format!("-mllvm {option}"), reason));
        let bare = option.strip_prefix("--").or_else(|| option.strip_prefix('-'));
        let (name, value) = match bare.unwrap_or_default().split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (bare.unwrap_or_default(), None),
        };
        let Some((kind, _)) = MLLVM.iter().find(|(_, names)| names.contains(&name)) else {
            return refuse("it is not on the list of LLVM options that may run elsewhere".into());
        };
        match (kind, value) {
            (Value::Switch, None) => {}
            (_, None) => return refuse("it needs `=` and a value".into()),
            (kind, Some(value)) => {
                if let Some(flaw) = kind.flaw(value, &[]) {
                    return refuse(flaw);
                }
            }
        }
        if SPLIT_SWITCHES.contains(&name) {
            self.seen.split |= !matches!(value, Some("false" | "0"));
        } else if name.ends_with("lto-split-partitions") {
            self.seen.partitions = value.and_then(|value| value.parse().ok());
        }
        Ok(())
    }

    /// Debug information in a file of its own, which is named after the object.
    fn split_dwarf(&mut self, arg: &str) -> Result<(), Refusal> {
        let object = self.files.object;
        let slash = object.rfind('/').map_or(0, |at| at + 1);
        let stem = match object[slash..].rfind('.') {
            Some(dot) if dot > 0 => &object[..slash + dot],
            _ => object,
        };
        let dwo = format!("{stem}.dwo");
        if !self.files.other_outputs.contains(&dwo.as_str()) {
            return Err(Refusal::new(
                arg,
                "it makes a .dwo file that the job file does not declare",
            ));
        }
        self.seen.shows_names = true;
        Ok(())
    }
}

impl Seen {
    fn verdict(&self) -> Result<Weight, Refusal> {
        let parts = [
            (self.compile, "-c is missing: nothing says that an object is wanted"),
            (self.primary, "the job's module is missing"),
            (self.index, "-fthinlto-index= is missing: this is no ThinLTO job"),
            (self.object, "-o and the job's object are missing"),
        ];
        if let Some((_, reason)) = parts.iter().find(|(there, _)| !there) {
            return Err(Refusal::new("", *reason));
        }
        let slots = match self.partitions {
            _ if !self.split => 1,
            None | Some(0) => SPLIT_SLOTS,
            Some(partitions) => partitions.min(MAX_SLOTS),
        };
        Ok(Weight { slots, needs_ld_lld: self.split, shows_names: self.shows_names })
    }
}

/// Marks a file as met: it must be the `expected` one, and for the first time.
fn once(seen: &mut bool, arg: &str, name: &str, expected: &str, what: &str) -> Result<(), Refusal> {
    if name != expected {
        let shown = if arg == "-o" { format!("-o {name}") } else { arg.to_owned() };
        return Err(Refusal::new(&shown, format!("this is not {what}")));
    }
    if std::mem::replace(seen, true) {
        return Err(Refusal::new(arg, format!("{what} is named twice")));
    }
    Ok(())
}

/// Why a string can be no argument of a job.
fn misshapen(arg: &str) -> Option<&'static str> {
    match arg {
        "" => Some("an empty argument"),
        "-" => Some("no job reads standard input or writes standard output"),
        _ if arg.contains('\0') => Some("a NUL cannot be passed to a program"),
        _ => None,
    }
}
