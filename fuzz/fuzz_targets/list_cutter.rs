#![no_main]

libfuzzer_sys::fuzz_target!(init: zonewise_fuzzing::write_corpus("list_cutter"), |bytes: &[u8]| {
    zonewise_fuzzing::run("list_cutter", bytes);
});
