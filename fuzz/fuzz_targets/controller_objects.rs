#![no_main]

libfuzzer_sys::fuzz_target!(init: zonewise_fuzzing::write_corpus("controller_objects"), |bytes: &[u8]| {
    zonewise_fuzzing::run("controller_objects", bytes);
});
