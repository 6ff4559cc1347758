//! The supervisor's own log: messages of panics, and why the event log could not be written. The
//! file in the job's folder is created only if there is something to write.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use crate::host_fault::HostFault;
use crate::job::JobFolder;

/// Runs `work`, the main function of the process that supervises the job in `folder`, and logs its
/// panics and its error.
pub(crate) fn run_logged(
    folder: &Path,
    work: impl FnOnce() -> Result<(), HostFault>,
) -> Result<(), HostFault> {
    let log = JobFolder::at(folder.to_owned()).supervisor_log();
    let panic_log = log.clone();
    std::panic::set_hook(Box::new(move |panic| append(&panic_log, &panic.to_string())));
    work().inspect_err(|e| append(&log, &e.to_string()))
}

fn append(log: &Path, text: &str) {
    // If this fails, the job's terminal event has to suffice.
    let file = OpenOptions::new().append(true).create(true).open(log);
    let _ = file.and_then(|mut file| writeln!(file, "{text}"));
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn the_log_is_created_only_for_a_message() {
        let before = std::panic::take_hook();
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("supervisor.log");
        run_logged(dir.path(), || Ok(())).unwrap();
        assert!(!log.exists());
        run_logged(dir.path(), || {
            let defect = std::panic::catch_unwind(|| panic!("no such rung"));
            assert!(defect.is_err());
            Err(HostFault::new("write `events.jsonl`", Errno::NOSPC))
        })
        .unwrap_err();
        std::panic::set_hook(before);
        let log_text = std::fs::read_to_string(log).unwrap();
        assert!(log_text.contains("no such rung"), "{log_text}");
        assert!(
            log_text
                .ends_with("cannot write `events.jsonl`: No space left on device (os error 28)\n")
        );
    }
}
