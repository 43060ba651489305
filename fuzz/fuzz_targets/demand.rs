#![no_main]

libfuzzer_sys::fuzz_target!(init: zonewise_fuzzing::write_corpus("demand"), |bytes: &[u8]| {
    zonewise_fuzzing::run("demand", bytes);
});
