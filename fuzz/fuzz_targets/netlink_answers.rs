#![no_main]

libfuzzer_sys::fuzz_target!(init: zonewise_fuzzing::write_corpus("netlink_answers"), |bytes: &[u8]| {
    zonewise_fuzzing::run("netlink_answers", bytes);
});
