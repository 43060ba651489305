#![no_main]

libfuzzer_sys::fuzz_target!(init: zonewise_fuzzing::write_corpus("data_sets"), |bytes: &[u8]| {
    zonewise_fuzzing::run("data_sets", bytes);
});
