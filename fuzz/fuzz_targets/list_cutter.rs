#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| zonewise_fuzzing::run("list_cutter", bytes));
