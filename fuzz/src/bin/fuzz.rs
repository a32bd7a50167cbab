//! libFuzzer on the target that the variable `BURSAR_FUZZ` names.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bursar_fuzz::chosen()(data));
