//! The draft that was reviewed before DTLTO landed (llvm#126654): fields with names in place of positions, and
//! arguments that refer to them. Only linkers built in-house from that branch write it, no release does.
//! Knows nothing of the landed shape.

use super::json::{At, Node, Reader, Record};
use super::{Job, Text};
use anyhow::{Context, Result, bail, ensure};
use std::fmt;

/// Bytes that all references of a file may come to: a few short ones could ask for any number.
const ROOM: usize = 1 << 28;

/// Bytes that a piece of a reference counts beyond its length: empty ones cost time too.
const PIECE: usize = 64;

/// The fields that a reference may name, with what they hold.
type Lists = [(&'static str, Vec<Text>); 6];

/// Reads the jobs; `args` are those of `common` after the compiler, with their positions.
pub(super) fn jobs<'a>(
    mut common: Record<'a>,
    args: &[(usize, Node<'a>)],
    jobs: Vec<Record<'a>>,
    reader: &mut Reader,
) -> Result<Vec<Job>> {
    common.optional("linker_version")?;
    reader.note_unknown(common);
    let mut room = ROOM;
    jobs.into_iter().map(|record| job(record, args, reader, &mut room)).collect()
}

fn job<'a>(
    mut record: Record<'a>,
    common: &[(usize, Node<'a>)],
    reader: &mut Reader,
    room: &mut usize,
) -> Result<Job> {
    let lists: Lists = [
        one(&mut record, "primary_input", reader)?,
        one(&mut record, "summary_index", reader)?,
        one(&mut record, "primary_output", reader)?,
        any(&mut record, "imports", reader)?,
        any(&mut record, "additional_inputs", reader)?,
        any(&mut record, "additional_outputs", reader)?,
    ];
    let own = if record.has("args") { record.list("args", "strings")? } else { Vec::new() };
    let mut references = References { job: record.at, lists: &lists, room };
    let mut args = Vec::with_capacity(common.len() + own.len());
    for (i, arg) in common {
        args.push(references.resolve(arg, format_args!("common.args[{i}]"), reader)?);
    }
    for (i, arg) in own.iter().enumerate() {
        let place = record.place("args");
        args.push(references.resolve(arg, format_args!("{place}[{i}]"), reader)?);
    }
    reader.note_unknown(record);
    let [primary, index, object, imports, other_inputs, other_outputs] =
        lists.map(|(_, paths)| paths);
    let first = |mut paths: Vec<Text>| paths.swap_remove(0);
    Ok(Job {
        args,
        primary: first(primary),
        index: first(index),
        imports,
        other_inputs,
        object: first(object),
        other_outputs,
    })
}

fn one(
    record: &mut Record<'_>,
    name: &'static str,
    reader: &mut Reader,
) -> Result<(&'static str, Vec<Text>)> {
    let paths = reader.paths(record, name)?;
    let place = record.place(name);
    ensure!(paths.len() == 1, "{place}: expected a list of one string, found {}", paths.len());
    Ok((name, paths))
}

fn any(
    record: &mut Record<'_>,
    name: &'static str,
    reader: &mut Reader,
) -> Result<(&'static str, Vec<Text>)> {
    let paths = if record.has(name) { reader.paths(record, name)? } else { Vec::new() };
    Ok((name, paths))
}

/// What the references of one job are resolved with.
struct References<'r> {
    job: At,
    lists: &'r Lists,
    room: &'r mut usize,
}

impl References<'_> {
    /// A string as it is, or `[field, x1, x2, ...]`: strings as they are, numbers as that entry of the field, joined.
    fn resolve(
        &mut self,
        arg: &Node<'_>,
        at: fmt::Arguments<'_>,
        reader: &mut Reader,
    ) -> Result<Text> {
        let Node::List(reference) = arg else {
            return reader.text(arg, at);
        };
        let [Node::Text(field), parts @ ..] = &reference[..] else {
            bail!("{at}: expected a reference to begin with the name of a field");
        };
        let (name, paths) = self
            .lists
            .iter()
            .find(|(name, _)| name == field)
            .with_context(|| format!("{at}: a reference cannot name the field {field:?}"))?;
        ensure!(
            parts.iter().any(|part| matches!(part, Node::Index(_))),
            "{at}: the reference to {name} has no number that says which"
        );
        let mut joined = String::new();
        for part in parts {
            let piece = match part {
                Node::Text(literal) => literal,
                Node::Index(i) => usize::try_from(*i)
                    .ok()
                    .and_then(|i| paths.get(i))
                    .map(|path| &**path)
                    .with_context(|| format!("{at}: {} has no {name}[{i}]", self.job))?,
                other => bail!("{at}: expected a string or a number, found {}", other.kind()),
            };
            *self.room = (self.room.checked_sub(piece.len() + PIECE)).with_context(|| {
                format!("{at}: the references of all jobs are more than this program can hold")
            })?;
            joined.push_str(piece);
        }
        reader.text(&Node::Text(joined.into()), at)
    }
}
