//! Nothing of a secret stays in memory when it is not needed any more.
//!
//! Secrets live in allocations of their own, which are overwritten before they are freed; what
//! moves is a pointer. Who computes with them leaves copies on the stack, in frames that end:
//! [`on_clean_stack`] overwrites these.
//!
//! What this cannot reach: registers, and what the kernel saved of them; pages that were written to
//! swap or into a dump; copies that a caller of ours made before it called.

use core::hint::black_box;

/// Bytes below the caller's frame that are overwritten. A handshake message takes less than half of
/// it (`handshake/tests/residue.rs` finds what this would miss).
const DEPTH: usize = 16 * 1_024;

/// Calls `work`, and overwrites the stack that it used. What it returns must hold no secret by
/// value.
pub(crate) fn on_clean_stack<T>(work: impl FnOnce() -> T) -> T {
    let result = below(work);
    overwrite();
    result
}

/// Puts the frame of `work` below the caller's.
#[inline(never)]
fn below<T>(work: impl FnOnce() -> T) -> T {
    work()
}

#[inline(never)]
fn overwrite() {
    // The compiler does not know that nobody reads it.
    black_box(&mut [0_u8; DEPTH]);
}
