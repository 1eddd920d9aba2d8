//! The names that a link's modules have in bundles: `m0000`, `m0001`, ... in the byte order of the old
//! ones, all of one width. A module has one name in all jobs of its link, and sorts as before in each: on
//! nothing else of the names do the objects depend. Does not touch index shards.

use std::collections::{BTreeSet, HashMap};

use crate::jobfile::{Job, Text};

/// The names of all modules of a link.
#[derive(Debug)]
pub struct Names {
    places: HashMap<Text, usize>,
    width: usize,
}

impl Names {
    /// Names every module of `jobs`.
    pub fn new(jobs: &[Job]) -> Self {
        let modules: BTreeSet<&Text> =
            jobs.iter().flat_map(|job| job.imports.iter().chain([&job.primary])).collect();
        let width = modules.len().saturating_sub(1).to_string().len().max(4);
        let places = modules.into_iter().cloned().zip(0..).collect();
        Names { places, width }
    }

    /// The new name of a module of the link.
    pub fn get(&self, module: &str) -> Option<String> {
        let width = self.width;
        self.places.get(module).map(|place| format!("m{place:0width$}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::job;
    use super::*;

    #[test]
    fn new_names_sort_as_the_old_ones_in_a_link_of_any_size() {
        for (count, width) in [(1, 4), (10_000, 4), (10_001, 5)] {
            let imports: Vec<String> = (1..count).map(|n| format!("o/x{n}.o")).collect();
            let imports: Vec<&str> = imports.iter().map(String::as_str).collect();
            let job = job("o/x0.o", &imports);
            let names = Names::new(std::slice::from_ref(&job));
            let mut old: Vec<&str> = imports.iter().copied().chain(["o/x0.o"]).collect();
            old.sort_unstable();
            let new: Vec<String> = old.iter().map(|name| names.get(name).unwrap()).collect();
            assert!(new.is_sorted_by(|one, next| one < next));
            assert!(new.iter().all(|name| name.len() == width + 1), "{width}");
        }
    }

    #[test]
    fn a_module_has_one_name_in_all_jobs_and_others_have_none() {
        let jobs = [job("b.o", &["a.o"]), job("c.o", &["b.o"])];
        let names = Names::new(&jobs);
        let get = |name| names.get(name);
        assert_eq!(get("a.o").as_deref(), Some("m0000"));
        assert_eq!(get("b.o").as_deref(), Some("m0001"));
        assert_eq!(get("c.o").as_deref(), Some("m0002"));
        assert_eq!(get("d.o"), None);
    }
}
