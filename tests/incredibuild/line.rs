//! Splits a command line as Windows programs do, on every host; written apart from the bridge's own quoting, which it is
//! to judge. The rules are Microsoft's.

/// The arguments in `Params`.
pub(crate) fn split(line: &str) -> Vec<String> {
    let chars: Vec<char> = line.chars().collect();
    let mut args = Vec::new();
    let mut at = 0;
    loop {
        while at < chars.len() && (chars[at] == ' ' || chars[at] == '\t') {
            at += 1;
        }
        if at == chars.len() {
            return args;
        }
        let mut arg = String::new();
        let mut quoted = false;
        while at < chars.len() && (quoted || chars[at] != ' ' && chars[at] != '\t') {
            let backslashes = chars[at..].iter().take_while(|c| **c == '\\').count();
            at += backslashes;
            if chars.get(at) != Some(&'"') {
                arg.push_str(&"\\".repeat(backslashes));
                if backslashes == 0 {
                    arg.push(chars[at]);
                    at += 1;
                }
                continue;
            }
            arg.push_str(&"\\".repeat(backslashes / 2));
            if backslashes % 2 == 1 {
                arg.push('"');
            } else {
                quoted = !quoted;
            }
            at += 1;
        }
        args.push(arg);
    }
}
