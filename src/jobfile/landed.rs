//! The job file as LLVM landed it: LLD 21, 22 and 23 write the same shape.
//! What each position means is reserved by LLVM's DTLTO.rst. Says nothing about what the arguments do.

use super::json::{Node, Reader, Record};
use super::{Job, affordable};
use anyhow::{Result, ensure};

/// Reads the jobs; `args` are those of `common` after the compiler, with their positions.
pub(super) fn jobs<'a>(
    mut common: Record<'a>,
    args: &[(usize, Node<'a>)],
    jobs: Vec<Record<'a>>,
    reader: &mut Reader,
) -> Result<Vec<Job>> {
    let args = args
        .iter()
        .map(|(i, arg)| reader.text(arg, format_args!("common.args[{i}]")))
        .collect::<Result<Vec<_>>>()?;
    let other_inputs = reader.paths(&mut common, "inputs")?;
    affordable("common.inputs", other_inputs.len(), jobs.len())?;
    reader.note_unknown(common);

    let mut done = Vec::with_capacity(jobs.len());
    for mut job in jobs {
        let mut inputs = reader.paths(&mut job, "inputs")?;
        ensure!(
            inputs.len() >= 2,
            "{}: expected a module, its index and its imports, found {} in all",
            job.place("inputs"),
            inputs.len()
        );
        let imports = inputs.split_off(2);
        let mut outputs = reader.paths(&mut job, "outputs")?;
        ensure!(
            !outputs.is_empty(),
            "{}: expected an object file, found an empty list",
            job.place("outputs")
        );
        let other_outputs = outputs.split_off(1);
        let own = job.list("args", "strings")?;
        let mut command = Vec::with_capacity(args.len() + own.len());
        command.extend_from_slice(&args);
        for (i, arg) in own.iter().enumerate() {
            command.push(reader.text(arg, format_args!("{}[{i}]", job.place("args")))?);
        }
        reader.note_unknown(job);
        let [primary, index] = <[_; 2]>::try_from(inputs).expect("checked and split above");
        let [object] = <[_; 1]>::try_from(outputs).expect("checked and split above");
        done.push(Job {
            args: command,
            primary,
            index,
            imports,
            other_inputs: other_inputs.clone(),
            object,
            other_outputs,
        });
    }
    Ok(done)
}
