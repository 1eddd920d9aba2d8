//! The environment that icecream's nodes get, with the real clang: what is in it, and what the worker does there,
//! in a chroot without `/dev` and `/proc`, called as icecream's daemon calls it. Needs root and a static worker.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use dtlto_bridge::environment::{Environment, make};
use dtlto_bridge::toolchain::{Options, identify};
use kit::{Folder, skip, skip_without, static_bridge, tool};

#[test]
fn a_second_use_makes_nothing() {
    skip_without!("clang-22");
    let worker = match static_bridge() {
        Ok(path) => path,
        Err(why) => skip!("{why}"),
    };
    let cache = Folder::new();
    let cache = cache.path("");
    let options = Options { cache_folder: Some(&cache), ..Options::default() };
    let clang = identify(&tool("clang-22"), None, &options).unwrap();
    let first = make(&clang, worker, "", &cache).unwrap();
    assert!(first.made);
    let second = make(&clang, worker, "", &cache).unwrap();
    assert_eq!(second, Environment { made: false, ..first });
}
