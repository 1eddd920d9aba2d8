//! Forms of options: how a name and its value are written, and what a value may be. It does not know any option.

/// A form, and the names of the options that have it.
pub type Rule = (Form, &'static [&'static str]);

/// How an option and its value are written.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// The name alone.
    Flag,
    /// The value follows the name at once.
    Joined(Value),
    /// The value is the next argument.
    Separate(Value),
}

/// What a value may be. Only [`Value::Text`] may hold a `/`, and clang never opens what it says.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// A whole number of up to ten digits, with or without a minus.
    Number,
    /// A number that may have a fraction.
    Decimal,
    /// `true`, `false`, `1` or `0`.
    Switch,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Letters, digits and `_.+,-`.
    Word,
    /// A processor and its extensions; not `native`, which depends on the host, nor `help`, which prints.
    Cpu,
    /// A target for which clang makes objects without the help of other programs.
    Triple,
    /// The rest of a `-W` option: without a comma, which would hand it to another program.
    Warning,
    /// Anything.
    Text,
    /// A file of the job other than its modules, index and outputs.
    Input,
}

/// Architectures that LLD links and for which clang writes objects itself.
const ARCHITECTURES: [&str; 12] = [
    "x86_64", "i386", "i486", "i586", "i686", "aarch64", "arm", "thumb", "riscv", "powerpc",
    "mips", "s390x",
];

/// What is left of `arg` behind the `name`, in which `[no-]` stands for two names.
pub(super) fn after<'a>(name: &str, arg: &'a str) -> Option<&'a str> {
    let Some((head, tail)) = name.split_once("[no-]") else {
        return arg.strip_prefix(name);
    };
    let rest = arg.strip_prefix(head)?;
    rest.strip_prefix(tail).or_else(|| rest.strip_prefix("no-")?.strip_prefix(tail))
}

impl Value {
    /// Why `text` is not such a value; `inputs` are the files that it may name.
    pub(super) fn flaw(self, text: &str, inputs: &[&str]) -> Option<String> {
        let wanted = match self {
            Value::Number => (!is_number(text)).then(|| "a whole number".into()),
            Value::Decimal => {
                let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
                let good = is_number(whole) && !fraction.starts_with('-') && is_number(fraction);
                (!good).then(|| "a number".into())
            }
            Value::Switch => one_of(text, &["true", "false", "1", "0"]),
            Value::OneOf(words) => one_of(text, words),
            Value::Word => (!is_word(text, "_.+,-")).then(|| "a plain word".into()),
            Value::Warning => (!is_word(text, "_.+=-")).then(|| "the name of a warning".into()),
            Value::Cpu => return cpu_flaw(text),
            Value::Triple => {
                (!is_triple(text)).then(|| format!("a target of {}", ARCHITECTURES.join(", ")))
            }
            Value::Text => None,
            Value::Input => {
                let what = || "a file that the job file declares as an input of this job".into();
                (!inputs.contains(&text)).then(what)
            }
        };
        wanted.map(|what: String| format!("its value must be {what}"))
    }
}

fn one_of(text: &str, words: &[&str]) -> Option<String> {
    (!words.contains(&text)).then(|| words.join(" or "))
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    (1..=10).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_word(text: &str, signs: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || signs.contains(c);
    (1..=256).contains(&text.len()) && text.chars().all(good)
}

fn is_triple(text: &str) -> bool {
    let parts: Vec<_> = text.split('-').collect();
    is_word(text, "_.-")
        && (2..=5).contains(&parts.len())
        && ARCHITECTURES.iter().any(|name| parts[0].starts_with(name))
}

fn cpu_flaw(text: &str) -> Option<String> {
    if !is_word(text, "_.+-") {
        Some("its value must be a processor's name".into())
    } else if text.split('+').any(|part| part == "native") {
        Some("what `native` means depends on the host; name the processor".into())
    } else {
        (text == "help").then(|| "it prints a list and compiles nothing".into())
    }
}
