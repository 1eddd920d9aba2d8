//! Incredibuild's XML job file, read strictly: what is not known is refused. Elements, attributes and which of them must be
//! there are documented; the order of `Tools` and `Variables` and the exact schema are reconstructed from files that
//! others write. It runs nothing.

use std::collections::{BTreeMap, HashSet};

use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

/// A whole file.
#[derive(Debug, Default)]
pub(crate) struct BuildSet {
    /// Tools by the name of their environment and their own.
    pub(crate) tools: BTreeMap<(String, String), Tool>,
    /// Variables of the tasks.
    pub(crate) variables: Vec<(String, String)>,
    pub(crate) tasks: Vec<Task>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Tool {
    pub(crate) path: String,
    pub(crate) params: Option<String>,
    pub(crate) allow_remote: bool,
    pub(crate) masks: Vec<String>,
    pub(crate) prefix: String,
    pub(crate) allow_restart_on_local: bool,
    pub(crate) skip_if_failed: bool,
    pub(crate) time_limit: Option<u64>,
    /// Codes beside 0 that are a success.
    pub(crate) success: Vec<(i32, i32)>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Task {
    pub(crate) name: String,
    pub(crate) caption: String,
    pub(crate) env: String,
    pub(crate) tool: String,
    pub(crate) params: Option<String>,
    pub(crate) folder: String,
    pub(crate) depends_on: Vec<String>,
    pub(crate) skip_if_failed: bool,
}

type Attributes = BTreeMap<String, String>;

/// An element: its parent, then the attributes that must and may be there.
type Rule = (&'static str, &'static str, &'static [&'static str], &'static [&'static str]);

const RULES: [Rule; 9] = [
    ("BuildSet", "", &["FormatVersion"], &[]),
    ("Environments", "BuildSet", &[], &[]),
    ("Environment", "Environments", &["Name"], &[]),
    ("Tools", "Environment", &[], &[]),
    (
        "Tool",
        "Tools",
        &["Name", "Path", "AllowRemote", "OutputFileMasks"],
        &[
            "Params",
            "OutputPrefix",
            "GroupPrefix",
            "SkipIfProjectFailed",
            "AutoReserveMemory",
            "VCCompiler",
            "SuccessExitCodes",
            "WarningExitCodes",
            "SingleInstancePerAgent",
            "AllowRestartOnLocal",
            "TimeLimit",
            "AutoRecover",
            "AllowIntercept",
        ],
    ),
    ("Variables", "Environment", &[], &[]),
    ("Variable", "Variables", &["Name", "Value"], &[]),
    ("Project", "BuildSet", &["Name", "Env"], &["WorkingDir"]),
    (
        "Task",
        "Project",
        &[],
        &[
            "Name",
            "Caption",
            "Tool",
            "Params",
            "SourceFile",
            "InputFiles",
            "OutputFiles",
            "WorkingDir",
            "DependsOn",
            "SkipIfProjectFailed",
            "AllowRestartOnLocal",
        ],
    ),
];

const GROUP: Rule =
    ("TaskGroup", "Project", &["Name", "Tool"], &["DependsOn", "StopOnErrors", "WorkingDir"]);

/// Reads the text of a file; the error says what a strict reader has against it.
pub(crate) fn read(text: &str) -> Result<BuildSet, String> {
    let mut reader = Reader::from_str(text);
    let mut set = BuildSet::default();
    let mut open: Vec<(String, Attributes)> = Vec::new();
    let mut whole = false;
    loop {
        let event = reader.read_event().map_err(|error| format!("not well-formed: {error}"))?;
        match event {
            Event::Start(element) => {
                let entered = enter(&mut set, &open, &element)?;
                open.push(entered);
            }
            Event::Empty(element) => drop(enter(&mut set, &open, &element)?),
            Event::End(_) => whole |= open.pop().is_some() && open.is_empty(),
            Event::Text(text) if text.trim().is_empty() => {}
            Event::Decl(_) | Event::Comment(_) => {}
            Event::Eof => break,
            other => return Err(format!("not expected: {other:?}")),
        }
    }
    if !whole || !open.is_empty() {
        return Err("the file is cut off".into());
    }
    check(&set)?;
    Ok(set)
}

fn attributes(element: &BytesStart<'_>) -> Result<Attributes, String> {
    let mut found = Attributes::new();
    for attribute in element.attributes() {
        let attribute =
            attribute.map_err(|error| format!("{}: {error}", element.name().as_ref()))?;
        let name = attribute.key.as_ref().to_owned();
        let value = attribute.normalized_value(XmlVersion::Implicit1_0);
        let value = value.map_err(|error| format!("{name}: {error}"))?;
        found.insert(name, value.into_owned());
    }
    Ok(found)
}

fn enter(
    set: &mut BuildSet,
    open: &[(String, Attributes)],
    element: &BytesStart<'_>,
) -> Result<(String, Attributes), String> {
    let name = element.name().as_ref().to_owned();
    let rule = RULES.iter().chain([&GROUP]).find(|rule| rule.0 == name);
    let Some((_, parent, needed, allowed)) = rule else {
        return Err(format!("unknown element {name}"));
    };
    let above = open.last().map_or("", |(name, _)| name);
    let in_group = above == "TaskGroup" && ["Task", "TaskGroup"].contains(&&*name);
    if above != *parent && !in_group {
        return Err(format!("{name} cannot stand in {above:?}"));
    }
    let found = attributes(element)?;
    if let Some(wrong) =
        found.keys().find(|key| !needed.contains(&&***key) && !allowed.contains(&&***key))
    {
        return Err(format!("{name}: unknown attribute {wrong}"));
    }
    if let Some(lacking) = needed.iter().find(|key| !found.contains_key(**key)) {
        return Err(format!("{name}: the attribute {lacking} is missing"));
    }
    let inherited = |key: &str| open.iter().rev().find_map(|(_, above)| above.get(key)).cloned();
    match &*name {
        "BuildSet" if found["FormatVersion"] != "1" => return Err("FormatVersion is not 1".into()),
        "Tool" => {
            let env = inherited("Name").unwrap_or_default();
            let key = (env, found["Name"].clone());
            if set.tools.insert(key, tool(&found)?).is_some() {
                return Err(format!("two tools are called {}", found["Name"]));
            }
        }
        "Variable" => set.variables.push((found["Name"].clone(), found["Value"].clone())),
        "Task" => {
            let get = |key: &str| found.get(key).cloned();
            let list = get("DependsOn").or_else(|| inherited("DependsOn")).unwrap_or_default();
            set.tasks.push(Task {
                name: get("Name").unwrap_or_default(),
                caption: get("Caption").or_else(|| get("Name")).unwrap_or_default(),
                env: inherited("Env").unwrap_or_default(),
                tool: get("Tool").or_else(|| inherited("Tool")).ok_or("a task has no tool")?,
                params: get("Params"),
                folder: get("WorkingDir").or_else(|| inherited("WorkingDir")).unwrap_or_default(),
                depends_on: list.split(';').filter(|n| !n.is_empty()).map(str::to_owned).collect(),
                skip_if_failed: boolean(&found, "SkipIfProjectFailed")?,
            });
        }
        _ => {}
    }
    Ok((name, found))
}

fn tool(found: &Attributes) -> Result<Tool, String> {
    for unused in ["VCCompiler", "SingleInstancePerAgent", "AllowIntercept"] {
        boolean(found, unused)?;
    }
    // A Boolean in the documents, a mask in files that others write.
    if let Some(value) = found.get("AutoReserveMemory")
        && boolean(found, "AutoReserveMemory").is_err()
        && !value.contains('*')
    {
        return Err(format!("AutoReserveMemory: {value:?}"));
    }
    let codes = found.get("SuccessExitCodes").into_iter().chain(found.get("WarningExitCodes"));
    let code = |text: &str| text.trim().parse::<i32>().map_err(|_| format!("exit code {text:?}"));
    let mut success = Vec::new();
    for part in codes.flat_map(|list| list.split(',')) {
        let (first, last) = part.split_once("..").unwrap_or((part, part));
        success.push((code(first)?, code(last)?));
    }
    let limit = found.get("TimeLimit");
    let limit = limit.map(|text| text.parse().map_err(|_| format!("TimeLimit: {text:?}")));
    let masks = found["OutputFileMasks"].split(',').map(|mask| mask.trim().to_owned());
    Ok(Tool {
        path: found["Path"].clone(),
        params: found.get("Params").cloned(),
        allow_remote: boolean(found, "AllowRemote")?,
        masks: masks.filter(|mask| !mask.is_empty()).collect(),
        prefix: found.get("OutputPrefix").cloned().unwrap_or_default(),
        allow_restart_on_local: boolean(found, "AllowRestartOnLocal")?,
        skip_if_failed: boolean(found, "SkipIfProjectFailed")?,
        time_limit: limit.transpose()?,
        success,
    })
}

fn boolean(found: &Attributes, key: &str) -> Result<bool, String> {
    match found.get(key).map(|value| value.to_lowercase()).as_deref() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(format!("{key}: {other:?} is no Boolean")),
    }
}

/// What must hold between elements.
fn check(set: &BuildSet) -> Result<(), String> {
    let mut names = HashSet::new();
    for task in &set.tasks {
        if !task.name.is_empty() && !names.insert(&*task.name) {
            return Err(format!("two tasks are called {}", task.name));
        }
        if !set.tools.contains_key(&(task.env.clone(), task.tool.clone())) {
            return Err(format!(
                "task {}: there is no tool {} in {}",
                task.name, task.tool, task.env
            ));
        }
    }
    let mut done: HashSet<&str> = HashSet::new();
    let mut left: Vec<&Task> = set.tasks.iter().collect();
    while !left.is_empty() {
        let before = left.len();
        left.retain(|task| {
            let ready = task.depends_on.iter().all(|name| done.contains(&**name));
            if ready {
                done.insert(&task.name);
            }
            !ready
        });
        if left.len() == before {
            return Err(format!("task {} waits for what never comes", left[0].name));
        }
    }
    Ok(())
}

/// Whether the base name `name` matches a mask of `*` and `?`; Windows does not mind case.
pub(crate) fn matches(mask: &str, name: &str) -> bool {
    let mask: Vec<char> = mask.to_lowercase().chars().collect();
    let name: Vec<char> = name.to_lowercase().chars().collect();
    fn at(mask: &[char], name: &[char]) -> bool {
        match (mask.first(), name.first()) {
            (None, None) => true,
            (Some('*'), _) => at(&mask[1..], name) || !name.is_empty() && at(mask, &name[1..]),
            (Some('?'), Some(_)) => at(&mask[1..], &name[1..]),
            (Some(a), Some(b)) if a == b => at(&mask[1..], &name[1..]),
            _ => false,
        }
    }
    at(&mask, &name)
}
