//! A job's arguments with the names that its files have in a bundle. Refuses a command whose shape is not
//! known: a file that clang would look for under its old name must not go unnoticed. Does not know what
//! other options mean.

use std::path::Path;

use crate::jobfile::{Job, Text};

/// A command that can run in another folder.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) args: Vec<String>,
    /// In the order of [`Job::outputs`].
    pub(super) outputs: Vec<String>,
}

/// The name of the index in a bundle.
pub const INDEX: &str = "index";

/// The name of a further input in a bundle.
pub(super) fn other(number: usize) -> String {
    format!("other/{number}")
}

/// Rewrites the arguments of `job`, whose primary is called `primary` in the bundle.
///
/// # Errors
/// Why the job cannot travel, as a clause.
pub(super) fn moved(job: &Job, primary: &str) -> Result<Moved, String> {
    let outputs = outputs(job)?;
    let mut new: Vec<(&Text, String)> = job.other_inputs.iter().zip((0..).map(other)).collect();
    new.extend(job.other_outputs.iter().zip(outputs[1..].iter().cloned()));
    let mut met = vec![false; new.len()];
    let (mut primaries, mut indexes, mut objects, mut outputs_given) = (0, 0, 0, 0);

    let mut args = Vec::with_capacity(job.args.len());
    let mut before = "";
    for arg in &job.args {
        outputs_given += usize::from(before != "-mllvm" && arg.starts_with("-o"));
        args.push(if before == "-o" {
            objects += usize::from(*arg == job.object);
            outputs[0].clone()
        } else if *arg == job.primary {
            primaries += 1;
            primary.to_owned()
        } else if arg.strip_prefix("-fthinlto-index=").is_some_and(|index| *index == *job.index) {
            indexes += 1;
            format!("-fthinlto-index={INDEX}")
        } else {
            renamed(arg, &new, &mut met)
        });
        before = arg;
    }
    if (primaries, indexes, objects, outputs_given) != (1, 1, 1, 1) {
        return Err(format!(
            "its arguments do not name the module {}, its index and its object once each, as LLD's do",
            job.primary
        ));
    }
    let unmet = |number: usize| !met[number] && number < job.other_inputs.len();
    match (0..new.len()).find(|&number| unmet(number)) {
        Some(number) => Err(format!("no argument names its input {}", new[number].0)),
        None => Ok(Moved { args, outputs }),
    }
}

/// An argument in which a file stands alone or behind the first `=`.
fn renamed(arg: &str, new: &[(&Text, String)], met: &mut [bool]) -> String {
    let (option, value) = arg.split_once('=').map_or(("", arg), |(option, value)| (option, value));
    for (number, (old, new)) in new.iter().enumerate() {
        if ***old == *arg {
            met[number] = true;
            return new.clone();
        }
        if ***old == *value {
            met[number] = true;
            return format!("{option}={new}");
        }
    }
    arg.to_owned()
}

/// The names of a job's outputs in the bundle.
///
/// clang makes the names of further outputs from that of the object (`a.o`, `a.dwo`), so they share its
/// stem here too. It also writes the name of a `.dwo` file into the object: then the names must stay.
fn outputs(job: &Job) -> Result<Vec<String>, String> {
    let keep = job.other_outputs.iter().any(|other| other.ends_with(".dwo"));
    let stem = without_extension(&job.object);
    let mut names = vec![if keep { job.object.to_string() } else { "out.o".to_owned() }];
    for (number, output) in job.other_outputs.iter().enumerate() {
        let derived = output.strip_prefix(stem).filter(|rest| rest.starts_with('.'));
        let named = job.args.iter().any(|arg| {
            **arg == **output || arg.split_once('=').is_some_and(|(_, value)| *value == **output)
        });
        names.push(match derived {
            _ if keep => output.to_string(),
            Some(rest) => format!("out{rest}"),
            None if named => format!("out.{number}"),
            None => return Err(format!("nothing tells how clang comes to make {output}")),
        });
    }
    Ok(names)
}

fn without_extension(path: &str) -> &str {
    let extension = Path::new(path).extension().map_or(0, |ending| ending.len() + 1);
    &path[..path.len() - extension]
}

#[cfg(test)]
mod tests {
    use super::super::tests::job;
    use super::*;

    fn texts(list: &[&str]) -> Vec<Text> {
        list.iter().map(|&text| text.into()).collect()
    }

    fn moved_args(job: &Job) -> String {
        moved(job, "m0007").unwrap().args.join(" ")
    }

    #[test]
    fn the_arguments_of_lld_get_the_names_of_the_bundle() {
        let found = moved(&job("o/a b.o", &["o/b.o"]), "m0007").unwrap();
        assert_eq!(found.args.join(" "), "-c -O2 m0007 -fthinlto-index=index -o out.o");
        assert_eq!(found.outputs, ["out.o"]);
    }

    #[test]
    fn further_files_are_renamed_alone_and_behind_an_equals_sign() {
        let mut job = job("a.o", &[]);
        job.other_inputs = texts(&["p=q.prof", "list"]);
        job.other_outputs = texts(&["remarks.txt", "a.native.opt.yaml"]);
        job.args.extend(texts(&["-fprofile-sample-use=p=q.prof", "-x", "list", "-r=remarks.txt"]));
        let found = moved(&job, "m0").unwrap();
        let tail = found.args[6..].join(" ");
        assert_eq!(tail, "-fprofile-sample-use=other/0 -x other/1 -r=out.0");
        assert_eq!(found.outputs, ["out.o", "out.0", "out.opt.yaml"]);
    }

    #[test]
    fn beside_a_dwo_file_outputs_keep_their_names() {
        let mut job = job("a.o", &[]);
        job.other_outputs = texts(&["a.native.dwo"]);
        let found = moved(&job, "m0").unwrap();
        assert_eq!(found.outputs, ["a.native.o", "a.native.dwo"]);
        assert!(found.args.ends_with(&["-o".to_owned(), "a.native.o".to_owned()]));
    }

    #[test]
    fn commands_of_another_shape_stay_here() {
        let refused = |change: &dyn Fn(&mut Job)| {
            let mut job = job("a.o", &["b.o"]);
            change(&mut job);
            moved(&job, "m0").expect_err("it must not travel")
        };
        let shape = "once each, as LLD's do";
        assert!(refused(&|job| job.args.push("a.o".into())).contains(shape));
        assert!(refused(&|job| job.args.retain(|arg| **arg != *"a.o")).contains(shape));
        assert!(refused(&|job| job.args[2] = "./a.o".into()).contains(shape));
        assert!(refused(&|job| job.args[3] = "-fthinlto-index=x".into()).contains(shape));
        assert!(refused(&|job| job.args[5] = "elsewhere.o".into()).contains(shape));
        assert!(refused(&|job| job.args.push("-oelsewhere.o".into())).contains(shape));
        assert!(refused(&|job| job.args.truncate(5)).contains(shape));
        assert!(refused(&|job| job.other_inputs = texts(&["p"])).contains("no argument names"));
        assert!(refused(&|job| job.other_outputs = texts(&["x.txt"])).contains("nothing tells"));
    }

    #[test]
    fn an_argument_that_only_resembles_a_name_stays() {
        let mut job = job("a.o", &[]);
        job.other_inputs = texts(&["p"]);
        job.args.extend(texts(&["-f=p", "-g=pp", "xp", "-h=x=p", "-mllvm", "-outline"]));
        assert!(moved_args(&job).ends_with("-f=other/0 -g=pp xp -h=x=p -mllvm -outline"));
    }
}
