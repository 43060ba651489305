#![no_main]

libfuzzer_sys::fuzz_target!(init: zonewise_fuzzing::write_corpus("reviews"), |bytes: &[u8]| {
    zonewise_fuzzing::run("reviews", bytes);
});
