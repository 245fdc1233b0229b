#![no_main]
#[path = "../src/expressions.rs"]
mod target;
libfuzzer_sys::fuzz_target!(|data: &[u8]| target::expressions(data));
