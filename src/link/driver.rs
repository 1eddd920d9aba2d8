//! Which of clang's drivers LLD's options are meant for. It runs nothing.

use std::path::Path;

use crate::cli;
use crate::jobfile::JobFile;

/// Takes care that a compiler given as `clang-cl` reads LLD's options as they are meant: as cl's they mean other things,
/// `-O2` becomes `-O3` (llvm#220379). Its sibling `clang` is the same program under the name that is right; where there
/// is none, an argument tells the driver. Returns what users should know of it.
pub(super) fn use_usual(file: &mut JobFile) -> Option<String> {
    let given = file.compiler.to_string();
    let path = Path::new(&given);
    let name = path.file_name()?.to_str()?;
    let stem = name.to_ascii_lowercase();
    let stem = stem.strip_suffix(".exe").unwrap_or(&stem);
    if !is_clang_cl(stem) {
        return None;
    }
    let at = name.to_ascii_lowercase().rfind("clang-cl")?;
    let sibling = format!("{}clang{}", &name[..at], &name[at + "clang-cl".len()..]);
    let sibling = path.with_file_name(sibling).to_str()?.to_owned();
    let what = match cli::find_program(&sibling) {
        Ok(_) => {
            file.compiler = sibling.as_str().into();
            format!("{sibling} is run instead")
        }
        Err(_) => {
            for job in &mut file.jobs {
                job.args.insert(0, "--driver-mode=gcc".into());
            }
            "it is told --driver-mode=gcc".to_owned()
        }
    };
    Some(format!("{given} would misread the options that LLD passes (llvm#220379); {what}"))
}

/// `clang-cl`, `clang-cl-22`, `x86_64-w64-windows-clang-cl`.
fn is_clang_cl(stem: &str) -> bool {
    let version = |c: char| c.is_ascii_digit() || c == '.' || c == '-';
    let stem = stem.trim_end_matches(version);
    stem == "clang-cl" || stem.ends_with("-clang-cl")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clang_cl_is_known_by_its_name() {
        for name in ["clang-cl", "clang-cl-22", "clang-cl-22.1", "x86_64-windows-clang-cl"] {
            assert!(is_clang_cl(name), "{name}");
        }
        for name in ["clang", "clang-22", "clang++", "clang-cpp", "notclang-cl", "clang-cling"] {
            assert!(!is_clang_cl(name), "{name}");
        }
    }
}
