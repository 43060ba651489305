#![no_main]

libfuzzer_sys::fuzz_target!(init: zonewise_fuzzing::write_corpus("zone_shares"), |bytes: &[u8]| {
    zonewise_fuzzing::run("zone_shares", bytes);
});
