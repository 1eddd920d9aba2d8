//! Templates: text with `{placeholders}`, parsed once, filled in one pass, so that a value which looks like
//! a placeholder stays as it is. No conditions, no shell, no environment. Knows neither where the values
//! come from nor which placeholders a place in the manifest allows.

use super::words::words;

words! {
    /// A placeholder for one value: `{compiler}`.
    pub enum Scalar {
        /// The compiler that LLD names for the jobs.
        Compiler = "compiler",
        /// The bitcode module that the job compiles.
        Primary = "primary",
        /// The job's index shard.
        Index = "index",
        /// The job's first output: the native object.
        Object = "object",
        /// What the link makes.
        LinkerOutput = "linker_output",
        /// The manifest's `tool`, found.
        Tool = "tool",
        /// The number of the job within the link.
        Job = "job",
        /// The id of the link.
        Link = "link",
        /// The bundle that goes there.
        Request = "request",
        /// The bundle that comes back.
        Response = "response",
        /// The host that the bridge has chosen, as the tool wants it.
        Host = "host",
        /// The address of the tool's server, where the bridge has one of its own.
        Server = "server",
        /// The files that the job reads beside the module: absolute, with colons between them.
        Declared = "declared",
        /// What decides about the compiler's objects, as one digest.
        Identity = "identity",
        /// The environment that is shipped to hosts, as the tool wants it named.
        Environment = "environment",
        /// A folder of the link's own, for what the tool keeps while it runs.
        Private = "private",
        /// Seconds that an attempt may take.
        Seconds = "seconds",
        /// The task file of a batch.
        Tasks = "tasks",
    }
}

words! {
    /// A placeholder for any number of values: `{args...}`.
    pub enum List {
        /// The whole command of the job after the compiler.
        Args = "args",
        /// The modules that the job takes functions from.
        Imports = "imports",
        /// The inputs that are neither primary, index shard nor import.
        OtherInputs = "other_inputs",
        /// All inputs.
        Inputs = "inputs",
        /// All outputs.
        Outputs = "outputs",
        /// The bridge's own program and arguments.
        Bridge = "bridge",
    }
}

/// Where a template's values come from.
pub trait Values {
    /// The value of `{scalar}`.
    fn scalar(&self, scalar: Scalar) -> &str;

    /// The values of `{list...}`, in order.
    fn list(&self, list: List) -> Vec<&str>;
}

/// Text that becomes one value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Value(Scalar),
}

impl Template {
    /// Parses `text`; the error lists everything that is wrong with it.
    pub fn parse(text: &str) -> Result<Template, Vec<String>> {
        let mut parts = Vec::new();
        let mut problems = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                literal.push_str(brace);
                rest = after;
            } else if brace == "{"
                && let Some((name, after)) = rest.split_once('}')
                && !name.contains('{')
            {
                if !literal.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut literal)));
                }
                match scalar(name) {
                    Ok(scalar) => parts.push(Part::Value(scalar)),
                    Err(problem) => problems.push(problem),
                }
                rest = after;
            } else {
                problems.push(format!("stray {brace}; write {brace}{brace} for a brace"));
            }
        }
        literal.push_str(rest);
        if text.contains('\0') {
            problems.push("holds a NUL character, which no argument or variable can".to_owned());
        }
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        if problems.is_empty() { Ok(Template(parts)) } else { Err(problems) }
    }

    /// The text with every placeholder replaced.
    pub fn expand(&self, values: &impl Values) -> String {
        self.expand_with(|scalar| values.scalar(scalar))
    }

    pub(super) fn expand_with<'a>(&'a self, value: impl Fn(Scalar) -> &'a str) -> String {
        let part = |part: &'a Part| match part {
            Part::Text(text) => text.as_str(),
            Part::Value(scalar) => value(*scalar),
        };
        self.0.iter().map(part).collect()
    }

    /// The placeholders in it, in order.
    pub fn scalars(&self) -> impl Iterator<Item = Scalar> + '_ {
        self.0.iter().filter_map(|part| match part {
            Part::Value(scalar) => Some(*scalar),
            Part::Text(_) => None,
        })
    }

    /// Its text, if it holds no placeholder.
    pub(super) fn as_literal(&self) -> Option<&str> {
        match self.0.as_slice() {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Its placeholder, if it is nothing else.
    pub(super) fn as_scalar(&self) -> Option<Scalar> {
        match self.0.as_slice() {
            [Part::Value(scalar)] => Some(*scalar),
            _ => None,
        }
    }
}

/// The argument vector of one command, its first element the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Argv(pub(super) Vec<Element>);

/// An element of an [`Argv`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Element {
    One(Template),
    Splice(List),
}

impl Element {
    /// Parses one element of a command; the error lists everything that is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Element, Vec<String>> {
        let name = text.strip_prefix('{').and_then(|text| text.strip_suffix("...}"));
        match name.and_then(List::from_word) {
            Some(list) => Ok(Element::Splice(list)),
            None => Template::parse(text).map(Element::One),
        }
    }
}

impl Argv {
    /// The arguments, the program first.
    pub fn expand(&self, values: &impl Values) -> Vec<String> {
        let mut argv = Vec::with_capacity(self.0.len());
        for element in &self.0 {
            match element {
                Element::One(template) => argv.push(template.expand(values)),
                Element::Splice(list) => {
                    argv.extend(values.list(*list).into_iter().map(str::to_owned));
                }
            }
        }
        argv
    }
}

/// The placeholder `{name}` of a text, or why it cannot stand there.
fn scalar(name: &str) -> Result<Scalar, String> {
    let (word, dotted) = name.strip_suffix("...").map_or((name, false), |word| (word, true));
    match (Scalar::from_word(word), List::from_word(word)) {
        (Some(scalar), _) if !dotted => Ok(scalar),
        (Some(_), _) => Err(format!("{{{word}}} is one value, not a list; write it without dots")),
        (_, Some(_)) => {
            Err(format!("{{{word}...}} is a list; it must be a whole element of the command"))
        }
        _ => {
            let scalars = Scalar::ALL.iter().map(|known| format!("{{{known}}}"));
            let lists = List::ALL.iter().map(|known| format!("{{{known}...}}"));
            let known = scalars.chain(lists).collect::<Vec<_>>().join(", ");
            Err(format!("unknown placeholder {{{name}}}; known are {known}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every scalar is its own word; every list holds these.
    struct Job<'a>(&'a [String]);

    impl Values for Job<'_> {
        fn scalar(&self, scalar: Scalar) -> &str {
            scalar.word()
        }

        fn list(&self, _: List) -> Vec<&str> {
            self.0.iter().map(String::as_str).collect()
        }
    }

    fn expand(text: &str) -> Result<String, Vec<String>> {
        Template::parse(text).map(|template| template.expand(&Job(&[])))
    }

    fn argv(elements: &[&str]) -> Argv {
        Argv(elements.iter().map(|text| Element::parse(text).unwrap()).collect())
    }

    #[test]
    fn a_scalar_stands_anywhere_in_a_text() {
        assert_eq!(expand("").unwrap(), "");
        assert_eq!(expand("{object}").unwrap(), "object");
        assert_eq!(expand("-o{object}.{job}x").unwrap(), "-oobject.jobx");
        for scalar in Scalar::ALL {
            assert_eq!(expand(&format!("<{{{scalar}}}>")).unwrap(), format!("<{scalar}>"));
        }
    }

    #[test]
    fn a_doubled_brace_is_a_brace() {
        assert_eq!(expand("{{}}").unwrap(), "{}");
        assert_eq!(expand("{{job}}").unwrap(), "{job}");
        assert_eq!(expand("{{{job}}}").unwrap(), "{job}");
        assert_eq!(expand("{{{{").unwrap(), "{{");
    }

    #[test]
    fn a_stray_brace_is_an_error() {
        let open = "stray {; write {{ for a brace";
        let close = "stray }; write }} for a brace";
        let cases: [(&str, &[&str]); 7] = [
            ("{", &[open]),
            ("a{b", &[open]),
            ("}", &[close]),
            ("a}b{", &[close, open]),
            ("{{{", &[open]),
            ("{job", &[open]),
            ("{a{job}", &[open]),
        ];
        for (text, expected) in cases {
            assert_eq!(expand(text).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn an_unknown_placeholder_is_answered_with_the_known_ones() {
        let known = "known are {compiler}, {primary}, {index}, {object}, {linker_output}, {tool}, \
                     {job}, {link}, {request}, {response}, {host}, {server}, {declared}, {identity}, {environment}, {private}, {seconds}, {tasks}, {args...}, {imports...}, {other_inputs...}, {inputs...}, \
                     {outputs...}, {bridge...}";
        for name in ["foo", "", "...", "Job", " job", "job....", "foo..."] {
            let expected = format!("unknown placeholder {{{name}}}; {known}");
            assert_eq!(expand(&format!("{{{name}}}")).unwrap_err(), [expected]);
        }
    }

    #[test]
    fn a_list_is_a_whole_element() {
        let expected = ["{args...} is a list; it must be a whole element of the command"];
        for text in ["x{args...}", "{args...} ", "{args}", "{args...}{args...}"] {
            assert_eq!(Element::parse(text).unwrap_err()[..1], expected, "{text}");
        }
        let scalar = "{job} is one value, not a list; write it without dots";
        assert_eq!(Element::parse("{job...}").unwrap_err(), [scalar]);
    }

    #[test]
    fn a_list_is_spliced_where_it_stands() {
        let list = ["-c".to_owned(), "a b".to_owned()];
        for known in List::ALL {
            let argv = argv(&["x", &format!("{{{known}...}}"), "y"]);
            assert_eq!(argv.expand(&Job(&list)), ["x", "-c", "a b", "y"]);
            assert_eq!(argv.expand(&Job(&[])), ["x", "y"]);
        }
    }

    #[test]
    fn a_nul_is_an_error() {
        assert_eq!(
            expand("a\0b").unwrap_err(),
            ["holds a NUL character, which no argument or variable can"]
        );
        assert!(expand("\0{job}").is_err());
    }

    proptest! {
        #[test]
        fn any_arguments_come_through_a_splice_unchanged(args in any::<Vec<String>>()) {
            let expanded = argv(&["{compiler}", "{args...}"]).expand(&Job(&args));
            prop_assert_eq!(&expanded[0], "compiler");
            prop_assert_eq!(&expanded[1..], args);
        }

        #[test]
        fn a_value_is_never_taken_for_a_template(value in "[{}a-z.]{0,20}|\\{job\\}") {
            let template = Template::parse("<{job}{{{object}>").unwrap();
            let expected = format!("<{value}{{{value}>");
            prop_assert_eq!(template.expand_with(|_| &value), expected);
        }

        #[test]
        fn escaped_text_comes_back(text in "[{}a-z.]*") {
            let escaped = text.replace('{', "{{").replace('}', "}}");
            prop_assert_eq!(expand(&escaped), Ok(text));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "[{}a-z.\0é]*|.*") {
            let _ = Element::parse(&text);
        }
    }
}
