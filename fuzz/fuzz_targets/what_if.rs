#![no_main]

libfuzzer_sys::fuzz_target!(init: zonewise_fuzzing::write_corpus("what_if"), |bytes: &[u8]| {
    zonewise_fuzzing::run("what_if", bytes);
});
