//! Incredibuild's XML job file: a `BuildSet` of format version 1 with a tool and a task for each job, as far as its
//! documents and the files that others write show it. It writes no file.

use std::path::Path;

use quick_xml::Writer;
use quick_xml::events::{BytesDecl, Event};

use super::{Batch, Task, is_unfit};

/// The name of the only environment.
const ENVIRONMENT: &str = "dtlto";

/// The text of the task file; `lines` are the tasks' command lines.
pub(super) fn text(
    batch: &Batch<'_>,
    tasks: &[Task],
    lines: &[String],
) -> std::io::Result<Vec<u8>> {
    let mut xml = Writer::new_with_indent(Vec::new(), b' ', 2);
    xml.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let set = xml.create_element("BuildSet").with_attribute(("FormatVersion", "1"));
    set.write_inner_content(|xml| {
        xml.create_element("Environments").write_inner_content(|xml| {
            let environment =
                xml.create_element("Environment").with_attribute(("Name", ENVIRONMENT));
            environment.write_inner_content(|xml| {
                xml.create_element("Tools").write_inner_content(|xml| {
                    tasks.iter().try_for_each(|task| tool(xml, batch, task))
                })?;
                Ok(())
            })?;
            Ok(())
        })?;
        let title = plain(batch.title);
        let project = xml.create_element("Project").with_attribute(("Name", &*title));
        project.with_attribute(("Env", ENVIRONMENT)).write_inner_content(|xml| {
            tasks.iter().zip(lines).try_for_each(|(task, line)| self::task(xml, batch, task, line))
        })?;
        Ok(())
    })?;
    let mut text = xml.into_inner();
    text.push(b'\n');
    Ok(text)
}

/// A tool for each job: only a tool can have an output prefix and masks.
fn tool(xml: &mut Writer<Vec<u8>>, batch: &Batch<'_>, task: &Task) -> std::io::Result<()> {
    let masks: Vec<String> = task.outputs.iter().map(|output| mask(output)).collect();
    let element = xml.create_element("Tool").with_attributes([
        ("Name", &*name(task)),
        ("Path", batch.compiler),
        ("AllowRemote", "True"),
        ("AllowIntercept", "True"),
        // Else this machine may race the remote one, and two would write one file.
        ("AllowRestartOnLocal", "False"),
        ("OutputFileMasks", &masks.join(",")),
        ("OutputPrefix", &super::log::prefix(task.number)),
        ("TimeLimit", &batch.seconds.to_string()),
    ]);
    element.write_empty().map(drop)
}

fn task(
    xml: &mut Writer<Vec<u8>>,
    batch: &Batch<'_>,
    task: &Task,
    line: &str,
) -> std::io::Result<()> {
    let element = xml.create_element("Task").with_attributes([
        ("SourceFile", ""),
        ("Caption", &*plain(&task.caption)),
        ("Name", &*format!("task{}", task.number)),
        ("Tool", &*name(task)),
        ("Params", line),
        ("WorkingDir", batch.folder),
    ]);
    element.write_empty().map(drop)
}

fn name(task: &Task) -> String {
    format!("tool{}", task.number)
}

/// A text for people without what would be a macro, or is no XML.
fn plain(text: &str) -> String {
    text.replace("$(", "$ (").replace(is_unfit, "?")
}

/// The mask of an output: its base name, with `?` in place of what separates masks.
fn mask(output: &str) -> String {
    let name = Path::new(output).file_name().map_or("*".into(), |name| name.to_string_lossy());
    name.replace("$(", "?(").replace(|c: char| is_unfit(c) || ",; ".contains(c), "?")
}
