#![no_main]

libfuzzer_sys::fuzz_target!(init: zonewise_fuzzing::write_corpus("metrics_pages"), |bytes: &[u8]| {
    zonewise_fuzzing::run("metrics_pages", bytes);
});
