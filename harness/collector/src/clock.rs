//! Time stamps for the NVTX log and for CUPTI.

/// Nanoseconds of `CLOCK_MONOTONIC`, the same clock in all processes until the next boot.
pub(crate) fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since 1970, from the host's wall clock.
pub(crate) fn unix_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid pointer to a timespec; on failure it stays zero.
    unsafe { libc::clock_gettime(clock, &mut time) };
    u64::try_from(time.tv_sec)
        .unwrap_or(0)
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}
