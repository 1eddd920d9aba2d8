//! From the text of a manifest to a [`Manifest`]: all that is wrong with its sense is told at once, each
//! problem with its path. Touches no disk and does not know whether the tool is installed.

mod command;
mod hand_over;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::{self, Path};

use anyhow::anyhow;

use super::shape::{self, Raw, RawEnv, RawExit, RawProbe, RawTripwire};
use super::strict::{Object, Texts};
use super::template::{Argv, Element, Scalar};
use super::{
    Delivery, Env, ExitRule, HandOver, Manifest, Meaning, Place, Probe, Scheduler, Shipping,
    Source, Tool, Tripwire,
};
use crate::cli;

/// How many problems one error lists.
const SHOWN: usize = 50;

impl Manifest {
    /// Reads the text of a manifest that comes from `source`.
    ///
    /// # Errors
    /// Lists every problem with its path in the manifest. One of shape (syntax, types, unknown keys) hides
    /// the others, since the text cannot be understood before it is gone.
    pub fn parse(text: &str, source: Source) -> anyhow::Result<Manifest> {
        let whose = match &source {
            Source::BuiltIn => "built-in adapter".to_owned(),
            Source::File(path) => format!("adapter {}", path.display()),
        };
        let raw = shape::read(text).map_err(|problem| vec![problem]);
        raw.and_then(|raw| Checker::new(source).manifest(raw)).map_err(|problems| {
            let mut lines: Vec<String> =
                problems.iter().take(SHOWN).map(|problem| escape_control(problem)).collect();
            if problems.len() > SHOWN {
                lines.push(format!("and {} more", problems.len() - SHOWN));
            }
            match lines.as_slice() {
                [line] => anyhow!("{whose}: {line}"),
                _ => anyhow!("{whose} has {} problems:\n  {}", problems.len(), lines.join("\n  ")),
            }
        })
    }
}

/// Whether an adapter may be called `name`.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

/// Builds a manifest and collects what is wrong with it on the way.
struct Checker {
    source: Source,
    has_tool: bool,
    uses_tool: bool,
    problems: Vec<String>,
}

impl Checker {
    fn new(source: Source) -> Self {
        Checker { source, has_tool: false, uses_tool: false, problems: Vec::new() }
    }

    fn manifest(mut self, raw: Raw) -> Result<Manifest, Vec<String>> {
        self.has_tool = raw.tool.is_some();
        self.name(&raw.name);
        self.line("summary", Some(&raw.summary));
        self.homepage(raw.homepage.as_deref());
        self.keys_of_hand_over(&raw);
        let tool = raw.tool.and_then(|tool| self.tools(tool));
        let command = self.command(&raw.command, raw.hand_over, raw.shipping);
        let batch = self.batch(raw.hand_over, raw.batch);
        if raw.shipping != Shipping::Direct && raw.place == Place::Local {
            self.add("shipping", "nothing needs to be shipped to stay here; write direct");
        }
        let env = self.env(raw.env.0);
        if raw.shipping == Shipping::Declared && env.only.is_none() {
            let why = "a tool that ships files may ship the environment too";
            self.add("env.only", format_args!("is needed with the shipping declared; {why}"));
        }
        let request = raw.request.unwrap_or(Delivery::File);
        if request == Delivery::Fifo && raw.shipping != Shipping::Bundle {
            self.add("request", "only the shipping bundle has one");
        }
        if raw.hosts.is_some() && raw.scheduler.is_some() {
            self.add("scheduler", "either it assigns hosts or the bridge does, by hosts");
        }
        let farm = (raw.place, raw.slots);
        let slots = match (raw.hosts, raw.scheduler) {
            (None, None) => self.slots(raw.place, raw.hand_over, raw.slots),
            (Some(_), _) => self.counted("hosts", "each host has its own", farm),
            (None, Some(_)) => self.counted("scheduler", "it knows how many there are", farm),
        };
        self.known_there(raw.hand_over, &command, &env);
        self.goes_with(("hosts", raw.hosts.is_some()), Scalar::Host, &command, &env);
        // What decides about objects is more than the tool would look at.
        let asked = ("scheduler", raw.scheduler == Some(Scheduler::Sccache));
        for scalar in [Scalar::Server, Scalar::Identity] {
            self.goes_with(asked, scalar, &command, &env);
        }
        let declared = ("shipping declared", raw.shipping == Shipping::Declared);
        self.goes_with(declared, Scalar::Declared, &command, &env);
        let shipped = ("environment", raw.environment.is_some());
        self.goes_with(shipped, Scalar::Environment, &command, &env);
        if raw.nice.is_some_and(|nice| !(1..=19).contains(&nice)) {
            self.add("nice", "must be within 1-19");
        }
        let tripwire = raw.tripwire.and_then(|Object(raw)| self.tripwire(raw));
        let exit = self.exit(raw.place, raw.shipping, raw.exit);
        let probes = raw.probes.into_iter().enumerate();
        let probes = probes.map(|(i, probe)| self.probe(i, probe.0)).collect();
        for (i, note) in raw.notes.iter().enumerate() {
            self.line(format_args!("notes[{i}]"), Some(note));
        }
        if self.has_tool && !self.uses_tool {
            self.add("tool", "is never used; write {tool} where the program belongs");
        }
        if !self.problems.is_empty() {
            return Err(self.problems);
        }
        Ok(Manifest {
            name: raw.name,
            summary: raw.summary,
            homepage: raw.homepage,
            place: raw.place,
            hand_over: raw.hand_over,
            shipping: raw.shipping,
            tool,
            command,
            env,
            request,
            environment: raw.environment,
            batch,
            hosts: raw.hosts,
            scheduler: raw.scheduler,
            nice: raw.nice.unwrap_or(0),
            tripwire,
            slots,
            exit,
            probes,
            notes: raw.notes,
            source: self.source,
        })
    }

    fn add(&mut self, at: impl Display, what: impl Display) {
        self.problems.push(format!("{at}: {what}"));
    }

    /// A text for people that goes onto a terminal.
    fn line(&mut self, at: impl Display, text: Option<&str>) {
        if text.is_some_and(|text| text.trim().is_empty() || text.contains(char::is_control)) {
            self.add(at, "must be one line of text");
        }
    }

    fn name(&mut self, name: &str) {
        if !is_name(name) {
            self.add("name", format_args!("{name:?} must be of a-z, 0-9, _ and - only"));
        } else if let Source::File(path) = &self.source
            && path.file_stem().is_none_or(|stem| stem != name)
        {
            self.add("name", format_args!("{name:?} must be the name of its file, {name}.json"));
        }
    }

    fn homepage(&mut self, homepage: Option<&str>) {
        self.line("homepage", homepage);
        if homepage.is_some_and(|url| !url.starts_with("https://") && !url.starts_with("http://")) {
            self.add("homepage", "must start with https:// or http://");
        }
    }

    fn tools(&mut self, Texts(mut tools): Texts) -> Option<Tool> {
        if let ([_], Some(tool)) = (tools.as_slice(), tools.last().cloned()) {
            return self.tool(tool);
        }
        tools.retain(|name| !name.is_empty() && !name.contains('\0'));
        if tools.is_empty() || tools.iter().any(|name| name.contains(path::is_separator)) {
            self.add("tool", "of several, each must be a name that is searched on PATH");
            return None;
        }
        Some(Tool::FirstOnPath(tools))
    }

    fn tool(&mut self, tool: String) -> Option<Tool> {
        if tool.is_empty() || tool.contains('\0') {
            self.add("tool", "must be a name or a path");
            return None;
        }
        if !tool.contains(path::is_separator) {
            return Some(Tool::OnPath(tool));
        }
        let folder = match &self.source {
            Source::BuiltIn if Path::new(&tool).is_absolute() => Path::new(""),
            Source::BuiltIn => {
                self.add(
                    "tool",
                    "a built-in adapter has no folder; write a name or an absolute path",
                );
                return None;
            }
            Source::File(path) => path.parent().unwrap_or(Path::new("")),
        };
        match path::absolute(folder.join(tool)) {
            Ok(path) => Some(Tool::At(path)),
            Err(error) => {
                self.add("tool", format_args!("cannot be made absolute: {error}"));
                None
            }
        }
    }

    fn env(&mut self, raw: RawEnv) -> Env {
        let mut names = BTreeSet::new();
        let mut set = Vec::new();
        for (name, text) in raw.set.0 {
            let at = format!("env.set.{name}");
            self.variable(&at, &name);
            if !names.insert(name.clone()) {
                self.add(&at, "is set twice");
            }
            if let Some(template) = self.template(&at, &text) {
                set.push((name, template));
            }
        }
        for (i, name) in raw.unset.iter().enumerate() {
            let at = format!("env.unset[{i}]");
            self.variable(&at, name);
            if !names.insert(name.clone()) {
                self.add(&at, format_args!("{name} is named before"));
            }
        }
        for name in raw.only.iter().flatten() {
            if !cli::is_harmless(name) {
                let why = "its value may be a secret";
                self.add("env.only", format_args!("{name} cannot be among them: {why}"));
            }
        }
        Env { only: raw.only, set, unset: raw.unset }
    }

    fn variable(&mut self, at: &str, name: &str) {
        if name.is_empty() || name.contains(['=', '\0']) {
            self.add(at, format_args!("{name:?} cannot be the name of a variable"));
        }
    }

    fn slots(
        &mut self,
        place: Place,
        hand_over: HandOver,
        slots: Option<u32>,
    ) -> Option<NonZeroU32> {
        let known = slots.and_then(NonZeroU32::new);
        match (place, slots) {
            (Place::Local, None) if hand_over == HandOver::Wrap => {
                self.add("slots", "are needed: how many jobs may be in flight under the tool");
            }
            (Place::Local, Some(_)) if hand_over != HandOver::Wrap => {
                self.add("slots", "only a farm has them; --local-jobs bounds the jobs here");
            }
            (Place::Farm, None) => {
                self.add("slots", "a farm needs them: how many jobs may be in flight");
            }
            (_, Some(0)) => self.add("slots", "must be at least 1"),
            _ => {}
        }
        known
    }

    /// Slots are known by what stands under `key`.
    fn counted(
        &mut self,
        key: &str,
        why: &str,
        (place, slots): (Place, Option<u32>),
    ) -> Option<NonZeroU32> {
        if place == Place::Local {
            self.add(key, "only for a farm");
        }
        if slots.is_some() {
            self.add("slots", format_args!("{why}; leave them out"));
        }
        None
    }

    /// A placeholder stands where, and only where, a key gives it a value.
    fn goes_with(&mut self, (key, given): (&str, bool), scalar: Scalar, command: &Argv, env: &Env) {
        let in_command = command.0.iter().filter_map(|element| match element {
            Element::One(template) => Some(template),
            Element::Splice(_) => None,
        });
        let mut templates = in_command.chain(env.set.iter().map(|(_, template)| template));
        let used = templates.any(|template| template.scalars().any(|s| s == scalar));
        match (given, used) {
            (true, false) => {
                self.add(key, format_args!("needs {{{scalar}}} in command or env.set"))
            }
            (false, true) => {
                self.add("command", format_args!("{{{scalar}}} needs the key {key}"));
            }
            _ => {}
        }
    }

    fn tripwire(&mut self, raw: RawTripwire) -> Option<Tripwire> {
        let RawTripwire { program, code } = raw;
        if program.is_empty() || program.contains(['/', '\0']) {
            self.add("tripwire.program", "must be a bare name");
        }
        if code == 0 {
            self.add("tripwire.code", "0 would be a success");
        }
        Some(Tripwire { program, code })
    }

    fn exit(
        &mut self,
        place: Place,
        shipping: Shipping,
        raw: Vec<Object<RawExit>>,
    ) -> Vec<ExitRule> {
        if place == Place::Local && !raw.is_empty() {
            self.add("exit", "only for a farm; here every code but 0 is the compiler's own");
        }
        let mut taken = [false; 256];
        let mut rules = Vec::new();
        for (i, Object(RawExit { codes, means, say })) in raw.into_iter().enumerate() {
            self.line(format_args!("exit[{i}].say"), say.as_deref());
            if shipping == Shipping::Bundle && means == Meaning::CompilerError {
                self.add(format_args!("exit[{i}].means"), "the bundle says what the compiler did");
            }
            let at = format!("exit[{i}].codes");
            match parse_codes(&codes) {
                Ok(codes) => {
                    let own = usize::from(*codes.start())..=usize::from(*codes.end());
                    if taken[own.clone()].iter().all(|taken| *taken) {
                        self.add(at, "never matches; entries before it take all its codes");
                    }
                    taken[own].fill(true);
                    rules.push(ExitRule { codes, means, say });
                }
                Err(what) => self.add(at, format_args!("{codes:?} {what}")),
            }
        }
        rules
    }

    fn probe(&mut self, i: usize, raw: RawProbe) -> Probe {
        self.line(format_args!("probes[{i}].expect"), raw.expect.as_deref());
        self.line(format_args!("probes[{i}].help"), Some(&raw.help));
        if raw.command.is_empty() {
            self.add(format_args!("probes[{i}].command"), "must name a program");
        }
        let mut command = Vec::with_capacity(raw.command.len());
        for (j, text) in raw.command.iter().enumerate() {
            let at = format!("probes[{i}].command[{j}]");
            let Some(template) = self.template(&at, text) else { continue };
            for scalar in template.scalars() {
                if !matches!(scalar, Scalar::Tool | Scalar::Compiler) {
                    let known = "a probe knows {tool} and {compiler} only";
                    self.add(&at, format_args!("{{{scalar}}} belongs to a job; {known}"));
                }
            }
            if j == 0 {
                self.program(&at, &template);
            }
            command.push(template);
        }
        Probe { command, expect: raw.expect, help: raw.help }
    }
}

/// The codes of `"75"` or `"100-127"`, or what is wrong with them.
fn parse_codes(text: &str) -> Result<RangeInclusive<u8>, &'static str> {
    let code = |text: &str| {
        // `parse` alone would also take "+75".
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u8>().ok().filter(|_| digits)
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (code(first), code(last)) {
        (Some(0), _) => Err("holds 0, which is always done"),
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        (Some(_), Some(_)) => Err("starts after its end"),
        _ => Err("must be a code or a range within 1-255, as \"75\" or \"100-127\""),
    }
}

/// `text` without what a terminal would obey.
fn escape_control(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

#[cfg(test)]
mod tests;
