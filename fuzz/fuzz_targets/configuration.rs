#![no_main]

libfuzzer_sys::fuzz_target!(init: zonewise_fuzzing::write_corpus("configuration"), |bytes: &[u8]| {
    zonewise_fuzzing::run("configuration", bytes);
});
