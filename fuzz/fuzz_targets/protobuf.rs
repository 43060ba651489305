#![no_main]

libfuzzer_sys::fuzz_target!(init: zonewise_fuzzing::write_corpus("protobuf"), |bytes: &[u8]| {
    zonewise_fuzzing::run("protobuf", bytes);
});
