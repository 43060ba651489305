#![no_main]

libfuzzer_sys::fuzz_target!(init: zonewise_fuzzing::write_corpus("proxy_objects"), |bytes: &[u8]| {
    zonewise_fuzzing::run("proxy_objects", bytes);
});
