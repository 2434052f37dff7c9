#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    mpip_core::omission::check::compact_packets(bytes);
});
