//! Prefetching memory into the processor's caches.

/// Prefetches the memory at an address. Nothing is read, so any address is allowed.
#[inline(always)]
pub fn ask_for(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint; the processor ignores addresses that are not mapped.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
