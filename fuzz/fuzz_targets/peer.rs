#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    mpip_core::check::peer(bytes);
});
