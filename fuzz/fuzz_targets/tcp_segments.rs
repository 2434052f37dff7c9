#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    mpip_segments::check::segments(bytes);
});
