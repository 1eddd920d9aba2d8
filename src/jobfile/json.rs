//! JSON text as a small tree that borrows from it, and the readers that name a place when something is wrong there.
//! serde's own messages name Rust types, and its derive drops unknown fields in silence.
//! Knows neither dialect, only the names that any dialect uses: a value under another name is skipped, not kept.

use super::Text;
use anyhow::{Context, Result, bail, ensure};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::mem::{Discriminant, discriminant};

/// The fields whose values are kept.
const FIELDS: [&str; 12] = [
    "common",
    "jobs",
    "linker_output",
    "args",
    "inputs",
    "outputs",
    "primary_input",
    "summary_index",
    "imports",
    "additional_inputs",
    "primary_output",
    "additional_outputs",
];

/// A value of the file.
pub(super) enum Node<'a> {
    Text(Cow<'a, str>),
    Index(u64),
    List(Vec<Node<'a>>),
    Object(Vec<(Cow<'a, str>, Node<'a>)>),
    /// What no dialect uses, in words; also a value that was skipped.
    Other(&'static str),
}

impl Node<'_> {
    /// Says in an error what was found.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Node::Text(_) => "a string",
            Node::Index(_) => "a number",
            Node::List(_) => "a list",
            Node::Object(_) => "an object",
            Node::Other(kind) => kind,
        }
    }
}

impl<'de> Deserialize<'de> for Node<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Node<'de>, E> {
        Ok(Node::Text(Cow::Borrowed(text)))
    }
    fn visit_str<E>(self, unescaped: &str) -> Result<Node<'de>, E> {
        Ok(Node::Text(Cow::Owned(unescaped.to_owned())))
    }
    fn visit_u64<E>(self, number: u64) -> Result<Node<'de>, E> {
        Ok(Node::Index(number))
    }
    fn visit_i64<E>(self, _negative: i64) -> Result<Node<'de>, E> {
        Ok(Node::Other("a negative number"))
    }
    fn visit_f64<E>(self, _: f64) -> Result<Node<'de>, E> {
        Ok(Node::Other("a fraction"))
    }
    fn visit_bool<E>(self, _: bool) -> Result<Node<'de>, E> {
        Ok(Node::Other("true or false"))
    }
    fn visit_unit<E>(self) -> Result<Node<'de>, E> {
        Ok(Node::Other("null"))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node<'de>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node<'de>, A::Error> {
        let mut fields = Vec::new();
        // A key of JSON is always a string.
        while let Some(Node::Text(name)) = map.next_key()? {
            let value = if FIELDS.contains(&&*name) {
                map.next_value()?
            } else {
                map.next_value::<IgnoredAny>()?;
                Node::Other("a value of no known use")
            };
            fields.push((name, value));
        }
        Ok(Node::Object(fields))
    }
}

/// Reads `bytes` as JSON; the errors are for files that are no JSON at all.
pub(super) fn tree(bytes: &[u8]) -> Result<Node<'_>> {
    const WHY: &str = "LLD may have been killed while writing it, or the disk is full";
    let cut_off = || format!("cut off after {} bytes: {WHY}; link again", bytes.len());
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => bail!(cut_off()),
        Err(error) => bail!("not UTF-8 at byte {}: not a file that LLD wrote", error.valid_up_to()),
    };
    ensure!(!text.trim_ascii().is_empty(), "empty: {WHY}; link again");
    serde_json::from_str(text).map_err(|error| match error.classify() {
        Category::Eof => anyhow::Error::msg(cut_off()),
        _ => anyhow::anyhow!("not JSON that LLD wrote: {error}"),
    })
}

/// Which object of the file.
#[derive(Clone, Copy)]
pub(super) enum At {
    Top,
    Common,
    Job(usize),
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Top => f.write_str("top level"),
            At::Common => f.write_str("common"),
            At::Job(index) => write!(f, "jobs[{index}]"),
        }
    }
}

/// A field's place, as errors spell it: `jobs[1].outputs`.
#[derive(Clone, Copy)]
pub(super) struct Place<'n>(At, &'n str);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place(At::Top, name) => f.write_str(name),
            Place(at, name) => write!(f, "{at}.{name}"),
        }
    }
}

/// An object of the file, from which the fields are taken one by one.
pub(super) struct Record<'a> {
    pub(super) at: At,
    fields: Vec<(Cow<'a, str>, Node<'a>)>,
}

impl<'a> Record<'a> {
    pub(super) fn new(node: Node<'a>, at: At) -> Result<Self> {
        match node {
            Node::Object(fields) => Ok(Record { at, fields }),
            other => bail!("{at}: expected an object, found {}", other.kind()),
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(field, _)| field == name)
    }

    pub(super) fn place<'n>(&self, name: &'n str) -> Place<'n> {
        Place(self.at, name)
    }

    pub(super) fn optional(&mut self, name: &str) -> Result<Option<Node<'a>>> {
        let Some(found) = self.fields.iter().position(|(field, _)| field == name) else {
            return Ok(None);
        };
        let (_, value) = self.fields.remove(found);
        ensure!(!self.has(name), "{}: stands there twice", self.place(name));
        Ok(Some(value))
    }

    pub(super) fn required(&mut self, name: &str) -> Result<Node<'a>> {
        self.optional(name)?.with_context(|| format!("{}: missing field", self.place(name)))
    }

    /// Takes a list; `of` says of what.
    pub(super) fn list(&mut self, name: &str, of: &str) -> Result<Vec<Node<'a>>> {
        match self.required(name)? {
            Node::List(list) => Ok(list),
            other => {
                bail!("{}: expected a list of {of}, found {}", self.place(name), other.kind())
            }
        }
    }
}

/// Turns values into [`Text`]s and remembers what is to be told about the file.
#[derive(Default)]
pub(super) struct Reader {
    texts: HashSet<Text>,
    unknown: HashSet<(Discriminant<At>, String)>,
    pub(super) notices: Vec<String>,
}

impl Reader {
    /// The string `node`, fit to be an argument.
    pub(super) fn text(&mut self, node: &Node<'_>, at: fmt::Arguments<'_>) -> Result<Text> {
        let Node::Text(text) = node else {
            bail!("{at}: expected a string, found {}", node.kind());
        };
        if let Some(known) = self.texts.get(&**text) {
            return Ok(known.clone());
        }
        ensure!(!text.contains('\0'), "{at}: {text:?} holds a NUL character, no program takes it");
        let new = Text::from(&**text);
        self.texts.insert(new.clone());
        Ok(new)
    }

    /// The string `node`, fit to name a file.
    pub(super) fn path(&mut self, node: &Node<'_>, at: fmt::Arguments<'_>) -> Result<Text> {
        let path = self.text(node, at)?;
        ensure!(!path.is_empty(), "{at}: expected a path, found an empty string");
        ensure!(
            !path.contains('\u{FFFD}'),
            "{at}: the path {path:?} was not UTF-8 and is lost; rename the file or folder"
        );
        Ok(path)
    }

    /// Takes the list of paths `name`, which must be there.
    pub(super) fn paths(&mut self, record: &mut Record<'_>, name: &str) -> Result<Vec<Text>> {
        let list = record.list(name, "strings")?;
        let place = record.place(name);
        list.iter()
            .enumerate()
            .map(|(i, node)| self.path(node, format_args!("{place}[{i}]")))
            .collect()
    }

    /// Notes the fields that nobody took: each once, however many jobs have it.
    pub(super) fn note_unknown(&mut self, record: Record<'_>) {
        for (name, _) in record.fields {
            let field = (discriminant(&record.at), name.into_owned());
            if !self.unknown.contains(&field) {
                let place = Place(record.at, &field.1);
                self.notices.push(format!(
                    "{place}: unknown field, ignored; this LLD may be newer than this program"
                ));
                self.unknown.insert(field);
            }
        }
    }
}
