//! Arguments as text and back: a Windows command line, and a response file as clang reads it. Pure: it knows neither
//! programs nor files, and the same rules hold whatever machine this runs on.

/// Joins arguments into a command line that a Windows program splits into just these. It is for what follows the
/// program's own name, which Windows reads by other rules.
pub fn windows_line<'a>(args: impl IntoIterator<Item = &'a str>) -> String {
    let mut line = String::new();
    for (n, arg) in args.into_iter().enumerate() {
        if n > 0 {
            line.push(' ');
        }
        push_windows(&mut line, arg);
    }
    line
}

/// A backslash is plain unless a run of them ends at a quote: then each counts half, and an odd one escapes it.
fn push_windows(line: &mut String, arg: &str) {
    if !arg.is_empty() && !arg.contains([' ', '\t', '\n', '\x0b', '"']) {
        line.push_str(arg);
        return;
    }
    line.push('"');
    let mut backslashes = 0;
    for c in arg.chars() {
        match c {
            '\\' => backslashes += 1,
            '"' => {
                line.extend(std::iter::repeat_n('\\', backslashes + 1));
                backslashes = 0;
            }
            _ => backslashes = 0,
        }
        line.push(c);
    }
    line.extend(std::iter::repeat_n('\\', backslashes));
    line.push('"');
}

/// Splits a command line as `CommandLineToArgvW` splits what follows the program's name.
///
/// Only blanks and tabs separate. Where three quotes follow one another within quotes, or two do after an opening
/// one, C run-times differ from it; [`windows_line`] writes no such thing.
pub fn split_windows_line(line: &str) -> Vec<String> {
    let mut args = Vec::new();
    let mut rest = line.trim_start_matches([' ', '\t']).chars().peekable();
    while rest.peek().is_some() {
        let mut arg = String::new();
        // 0: not quoted; 1: quoted; 2: quoted, and the last character may have ended it.
        let mut quotes = 0;
        let mut backslashes = 0_usize;
        while let Some(c) = rest.next_if(|c| quotes == 1 || ![' ', '\t'].contains(c)) {
            match c {
                '\\' => {
                    arg.push(c);
                    backslashes += 1;
                    continue;
                }
                '"' if backslashes % 2 == 1 => {
                    arg.truncate(arg.len() - backslashes.div_ceil(2));
                    arg.push('"');
                }
                '"' => {
                    arg.truncate(arg.len() - backslashes / 2);
                    quotes += 1;
                    while rest.next_if_eq(&'"').is_some() {
                        quotes += 1;
                        if quotes == 3 {
                            arg.push('"');
                            quotes = 0;
                        }
                    }
                    quotes %= 2;
                }
                _ => arg.push(c),
            }
            backslashes = 0;
        }
        while rest.next_if(|c| [' ', '\t'].contains(c)).is_some() {}
        args.push(arg);
    }
    args
}

/// The text of a response file by GNU rules, an argument a line. clang reads its response files so on every host while
/// it is in its usual mode and not told `--rsp-quoting=windows` (tried with clang 22).
///
/// `None` for an empty argument, which clang drops from a response file (also tried).
pub fn response_file<'a>(args: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut text = String::new();
    for arg in args {
        if arg.is_empty() {
            return None;
        }
        text.push('"');
        for c in arg.chars() {
            if matches!(c, '\\' | '"') {
                text.push('\\');
            }
            text.push(c);
        }
        text.push_str("\"\n");
    }
    Some(text)
}

/// The arguments in a response file, as clang reads it: a backslash escapes the next character everywhere, both
/// kinds of quotes quote, and an argument of nothing is dropped.
pub fn split_response_file(text: &str) -> Vec<String> {
    let mut args = Vec::new();
    let mut arg = String::new();
    let mut quote = None;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => arg.push(rest.next().unwrap_or('\\')),
            _ if quote == Some(c) => quote = None,
            '"' | '\'' if quote.is_none() => quote = Some(c),
            ' ' | '\t' | '\r' | '\n' if quote.is_none() => {
                args.push(std::mem::take(&mut arg));
            }
            _ => arg.push(c),
        }
    }
    args.push(arg);
    args.retain(|arg| !arg.is_empty());
    args
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Microsoft's own examples, and what its documents say of backslashes.
    #[test]
    fn a_windows_line_is_split_as_documented() {
        let cases: [(&str, &[&str]); 12] = [
            ("", &[]),
            (r#""a b c" d e"#, &["a b c", "d", "e"]),
            (r#""ab\"c" "\\" d"#, &["ab\"c", "\\", "d"]),
            (r#"a\\\b d"e f"g h"#, &[r"a\\\b", "de fg", "h"]),
            (r#"a\\\"b c d"#, &[r#"a\"b"#, "c", "d"]),
            (r#"a\\\\"b c" d e"#, &[r"a\\b c", "d", "e"]),
            (r#"  a	"" b "#, &["a", "", "b"]),
            (r"C:\x\ -o", &[r"C:\x\", "-o"]),
            (r#""C:\x y\\" z"#, &[r"C:\x y\", "z"]),
            ("a\nb", &["a\nb"]),
            (r#"""""#, &["\""]),
            (r#""open to the end"#, &["open to the end"]),
        ];
        for (line, args) in cases {
            assert_eq!(split_windows_line(line), args, "{line}");
        }
    }

    #[test]
    fn only_what_must_be_is_quoted_for_windows() {
        let args = ["-c", r"C:\a\b.o", "", "a b", r"a b\", r#"q"q"#, "-o"];
        let line = r#"-c C:\a\b.o "" "a b" "a b\\" "q\"q" -o"#;
        assert_eq!(windows_line(args), line);
    }

    #[test]
    fn a_response_file_quotes_every_argument() {
        let args = ["-c", r"C:\a b", r#"q"q"#, "$(X)", "ü", "x\ny"];
        let text = "\"-c\"\n\"C:\\\\a b\"\n\"q\\\"q\"\n\"$(X)\"\n\"ü\"\n\"x\ny\"\n";
        assert_eq!(response_file(args).unwrap(), text);
    }

    #[test]
    fn an_empty_argument_cannot_stand_in_a_response_file() {
        assert_eq!(response_file(["a", ""]), None);
        assert_eq!(split_response_file("a \"\" '' b"), ["a", "b"]);
    }

    #[test]
    fn a_response_file_is_split_as_clang_does() {
        let text = "-DA=a\\ b 'c \"d' \"e 'f\"g\r\n\t'\\n'\\";
        assert_eq!(split_response_file(text), ["-DA=a b", "c \"d", "e 'fg", "n\\"]);
    }

    proptest! {
        #[test]
        fn arguments_come_back_from_a_windows_line(
            args in prop::collection::vec("[a \"\\\\\t\n$]{0,9}|\\PC*", 0..6)
        ) {
            let line = windows_line(args.iter().map(String::as_str));
            prop_assert_eq!(split_windows_line(&line), args);
        }

        #[test]
        fn arguments_come_back_from_a_response_file(
            args in prop::collection::vec("[a \"'\\\\\t\n\r$@]{1,9}|\\PC+", 0..6)
        ) {
            let text = response_file(args.iter().map(String::as_str)).unwrap();
            prop_assert_eq!(split_response_file(&text), args);
        }

        #[test]
        fn any_text_is_split(text in "[a \"'\\\\\t]*|.*") {
            split_windows_line(&text);
            split_response_file(&text);
        }
    }
}
