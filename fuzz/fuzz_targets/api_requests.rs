#![no_main]

libfuzzer_sys::fuzz_target!(init: zonewise_fuzzing::write_corpus("api_requests"), |bytes: &[u8]| {
    zonewise_fuzzing::run("api_requests", bytes);
});
