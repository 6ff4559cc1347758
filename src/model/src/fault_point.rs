//! Points at which a test can kill the process, as a power cut or the out-of-memory killer would.
//! They exist in debug builds only.

/// The variable that names a point.
#[cfg(debug_assertions)]
const VARIABLE: &str = "RGPU_TEST_KILL_AT";

/// Kills this process if the environment names this point.
#[cfg(debug_assertions)]
pub fn kill_if_named(point: &str) {
    use rustix::process::{Signal, getpid, kill_process};
    if std::env::var_os(VARIABLE).is_some_and(|named| named == point) {
        let _ = kill_process(getpid(), Signal::KILL);
    }
}

#[cfg(not(debug_assertions))]
pub fn kill_if_named(_point: &str) {}
