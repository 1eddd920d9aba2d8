#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    dtlto_bridge_fuzz::cache_entry(bytes);
});
