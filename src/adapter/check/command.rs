//! What the command of a manifest must and may not say, and which placeholders its texts may use. It does not know the
//! other keys.

use std::path::{self, Path};

use super::Checker;
use crate::adapter::template::{Argv, Element, List, Scalar, Template};
use crate::adapter::{HandOver, Shipping};

impl Checker {
    pub(super) fn command(
        &mut self,
        command: &[String],
        hand_over: HandOver,
        shipping: Shipping,
    ) -> Argv {
        let mut argv = Vec::with_capacity(command.len());
        for (i, text) in command.iter().enumerate() {
            let at = format!("command[{i}]");
            match Element::parse(text) {
                Ok(Element::Splice(_)) if i == 0 => self.add(at, "a list cannot be the program"),
                Ok(Element::Splice(list)) => argv.push(Element::Splice(list)),
                Ok(Element::One(template)) => {
                    self.placeholders(&at, &template);
                    if i == 0 {
                        self.program(&at, &template);
                    }
                    argv.push(Element::One(template));
                }
                Err(problems) => self.unreadable(&at, text, &problems),
            }
        }
        if command.is_empty() {
            self.add("command", "must name a program");
        } else if argv.len() == command.len() {
            match hand_over {
                HandOver::Each => self.shipped(&argv, shipping),
                HandOver::Batch | HandOver::Wrap => self.stands_for_all(&argv, hand_over),
            }
        }
        Argv(argv)
    }

    /// What a command must name, and what it cannot know, by how files get to the job.
    fn shipped(&mut self, argv: &[Element], shipping: Shipping) {
        let scalars: Vec<Scalar> = argv
            .iter()
            .filter_map(|element| match element {
                Element::One(template) => Some(template.scalars()),
                Element::Splice(_) => None,
            })
            .flatten()
            .collect();
        let lists = argv.iter().filter(|element| matches!(element, Element::Splice(_))).count();
        let bundles = [Scalar::Request, Scalar::Response];
        match shipping {
            Shipping::Direct | Shipping::Declared => {
                if !argv.contains(&Element::Splice(List::Args)) {
                    let why = "without it other objects would be made";
                    self.add("command", format_args!("needs the element {{args...}}; {why}"));
                }
                for scalar in bundles.into_iter().filter(|scalar| scalars.contains(scalar)) {
                    self.add("command", format_args!("{{{scalar}}} is for the shipping bundle"));
                }
            }
            Shipping::Bundle => {
                for scalar in bundles.into_iter().filter(|scalar| !scalars.contains(scalar)) {
                    self.add("command", format_args!("needs {{{scalar}}}, the bundle's file"));
                }
                let files = [Scalar::Compiler, Scalar::Primary, Scalar::Index, Scalar::Object];
                if lists > 0 || files.iter().any(|file| scalars.contains(file)) {
                    let why = "a bundle holds the job's command and files; leave them out";
                    self.add("command", why);
                }
            }
        }
    }

    /// A text that becomes one value; `None` if it cannot.
    pub(super) fn template(&mut self, at: &str, text: &str) -> Option<Template> {
        match Element::parse(text) {
            Ok(Element::One(template)) => {
                self.placeholders(at, &template);
                return Some(template);
            }
            Ok(Element::Splice(list)) => {
                self.add(at, format_args!("{{{list}...}} is a list; only command takes one"));
            }
            Err(problems) => self.unreadable(at, text, &problems),
        }
        None
    }

    pub(super) fn unreadable(&mut self, at: &str, text: &str, problems: &[String]) {
        // Else the tool would be called unused because of a mistake beside it.
        self.uses_tool |= text.contains("{tool}");
        problems.iter().for_each(|what| self.add(at, what));
    }

    pub(super) fn placeholders(&mut self, at: &str, template: &Template) {
        if template.scalars().any(|scalar| scalar == Scalar::Tool) {
            self.uses_tool = true;
            if !self.has_tool {
                self.add(at, "{tool} needs the key tool, which says what it is");
            }
        }
    }

    /// The first element of a command: known at load or found once, never made of a job's values.
    pub(super) fn program(&mut self, at: &str, program: &Template) {
        if matches!(program.as_scalar(), Some(Scalar::Tool | Scalar::Compiler)) {
            return;
        }
        match program.as_literal() {
            Some("") => self.add(at, "must name a program"),
            Some(path) if path.contains(path::is_separator) && !Path::new(path).is_absolute() => {
                self.add(at, "a relative path depends on where the link runs; name it in tool");
            }
            Some(_) => {}
            None => self.add(at, "the program must be {tool}, {compiler} or plain text"),
        }
    }
}
