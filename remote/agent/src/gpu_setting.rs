//! Changes each GPU for the time that a job holds it (locked clocks), and undoes the change.
//!
//! The commands that undo it are in the job's folder before the first change is made. So whoever
//! ends the job finds them there: its supervisor, its watchdog (a process that ends the job if the
//! supervisor is killed), or, if both were killed, the next agent that sees the job. Commands that
//! fail until then go to a folder of the user's, and the next job that holds the GPU runs them.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rgpu_protocol::plan::GpuSetting;
use rgpu_protocol::{Digest, Outcome};

use crate::command::ask;
use crate::host_fault::{HostFault, IoContext};
use crate::job::JobFolder;
use crate::supervisor::{EarlyEnd, marker};

/// Time limit of each command. Without a persistent driver, the first call loads it.
const COMMAND_WAIT: Duration = Duration::from_secs(30);

/// Attempts of a command that undoes a change.
const UNDO_TRIES: u32 = 3;

/// Largest file of commands that is read.
const MAX_UNDO_BYTES: u64 = 1 << 20;

/// The file with all undo commands. It is removed when all have succeeded.
fn undo_path(folder: &JobFolder) -> PathBuf {
    folder.path().join("gpu-undo.json")
}

/// Writes the undo commands to disk, then changes these GPUs.
///
/// # Errors
/// The file cannot be written, or a command fails. Then the GPUs changed before it are restored. If
/// that fails too, their undo commands stay on disk for [`undo`].
pub(crate) fn change(
    folder: &JobFolder,
    setting: &GpuSetting,
    uuids: &[&str],
) -> Result<(), EarlyEnd> {
    record(folder, setting, uuids)?;
    // The marker variable shows that the command belongs to the job. If the supervisor is killed,
    // the watchdog finds and kills the command by it. Otherwise the command could change the GPU
    // after the watchdog has restored it.
    let env = marker(folder).split_once('=').map(|(name, value)| (name.into(), value.into()));
    let env = env.into_iter().collect();
    for (at, uuid) in uuids.iter().enumerate() {
        if let Err(failure) = run(&command_for_gpu(&setting.apply, uuid), &env) {
            // Where a change is refused, undoing it is refused too. A command that was killed may
            // have made the change.
            let changed = if failure.was_killed { &uuids[..=at] } else { &uuids[..at] };
            if !failure.was_killed {
                let _ = undo_with_retries(&command_for_gpu(&setting.undo, uuid));
            }
            // If this fails, the old file stays. It holds these commands too.
            let _ = record(folder, setting, changed);
            // If this fails, the file stays. The end of the job tries again, and warns.
            let _ = undo(folder);
            let (code, text) = (GpuSetting::REFUSED.into(), failure.text);
            return Err(EarlyEnd::Outcome(Outcome::HostError { code, text }));
        }
    }
    Ok(())
}

/// Writes the undo commands for these GPUs to disk, in place of those that are there.
fn record(folder: &JobFolder, setting: &GpuSetting, uuids: &[&str]) -> Result<(), HostFault> {
    let path = undo_path(folder);
    let commands: Vec<Vec<String>> =
        uuids.iter().map(|uuid| command_for_gpu(&setting.undo, uuid)).collect();
    write(&path, &commands).context("write", &path)
}

fn write(path: &Path, commands: &[Vec<String>]) -> io::Result<()> {
    let new_path = path.with_extension("json.new");
    let file = std::fs::File::create(&new_path)?;
    serde_json::to_writer(&file, commands)?;
    // If only the container is killed, the GPUs may keep the change, and the file must still be
    // there. A host that goes down resets its GPUs.
    file.sync_all()?;
    std::fs::rename(&new_path, path)
}

/// Undoes what was changed for this job, if anything was.
///
/// # Errors
/// A command fails every time; the text says how. Its file is kept.
pub(crate) fn undo(folder: &JobFolder) -> Result<(), String> {
    let path = undo_path(folder);
    let commands = match read(&path) {
        Ok(commands) => commands,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(format!("cannot read `{}`: {e}", path.display())),
    };
    let failures: Vec<String> =
        commands.iter().filter_map(|argv| undo_with_retries(argv).err()).collect();
    if failures.is_empty() {
        let _ = std::fs::remove_file(&path);
        return Ok(());
    }
    Err(failures.join("; "))
}

/// The folder in an agent's root with the undo commands of ended jobs, one file for each.
fn left_folder(root: &Path) -> PathBuf {
    root.join("gpu-undo")
}

/// Moves the undo commands of a job that ends out of its folder, which may soon be removed. The
/// next job on the GPU runs them ([`undo_left`]).
///
/// # Errors
/// There are none, or they cannot be written. Then the file stays in the job's folder.
pub(crate) fn keep_after_end(folder: &JobFolder) -> io::Result<()> {
    let path = undo_path(folder);
    let commands = read(&path)?;
    let left_folder = left_folder(folder.root());
    DirBuilder::new().mode(0o700).recursive(true).create(&left_folder)?;
    for argv in commands {
        // If every job fails to undo its change, there is still one file for each GPU.
        let name = Digest::sha256(&serde_json::to_vec(&argv)?);
        write(&left_folder.join(format!("{}.json", name.as_str())), &[argv])?;
    }
    std::fs::remove_file(&path)
}

/// Undoes what ended jobs of this user left changed on these GPUs, which the caller has locked.
/// Tries each command once: if it fails, its file is kept for the next job.
///
/// # Errors
/// A command fails; the text says how.
pub(crate) fn undo_left(root: &Path, uuids: &[&str]) -> Result<(), String> {
    let mut failures = Vec::new();
    for entry in std::fs::read_dir(left_folder(root)).into_iter().flatten().flatten() {
        let path = entry.path();
        // Unreadable: a job that ends is just writing it.
        let commands = read(&path).unwrap_or_default();
        let is_ours = |word: &String| uuids.iter().any(|uuid| word.contains(uuid));
        if !commands.iter().flatten().any(is_ours) {
            continue;
        }
        let results = commands.iter().map(|argv| run(argv, &BTreeMap::new()));
        let failed: Vec<String> = results.filter_map(Result::err).map(|f| f.text).collect();
        if failed.is_empty() {
            let _ = std::fs::remove_file(&path);
        }
        failures.extend(failed);
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
}

/// The warning if undoing fails.
pub(crate) fn not_restored(failure: &str) -> String {
    format!("the GPU keeps what this job changed on it: {failure}")
}

/// The warning if undoing what an earlier job left fails.
pub(crate) fn left_not_restored(failure: &str) -> String {
    format!("the GPU keeps what an earlier job changed on it: {failure}")
}

fn undo_with_retries(argv: &[String]) -> Result<(), String> {
    let env = BTreeMap::new();
    let mut result = run(argv, &env);
    for _ in 1..UNDO_TRIES {
        if result.is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(200));
        result = run(argv, &env);
    }
    result.map_err(|failure| failure.text)
}

fn read(path: &Path) -> io::Result<Vec<Vec<String>>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_UNDO_BYTES).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// A command for one GPU.
fn command_for_gpu(argv: &[String], uuid: &str) -> Vec<String> {
    argv.iter().map(|word| word.replace(GpuSetting::UUID, uuid)).collect()
}

/// Why a command failed.
struct CommandFailure {
    /// One line.
    text: String,
    /// Whether it was killed, by us at the time limit or by another process.
    was_killed: bool,
}

fn run(argv: &[String], env: &BTreeMap<String, String>) -> Result<(), CommandFailure> {
    let name = argv.first().map(|path| path.rsplit('/').next().unwrap_or(path));
    let name = name.unwrap_or_default();
    let answer = ask(argv, env, 64 << 10, COMMAND_WAIT).map_err(|e| CommandFailure {
        text: format!("`{name}` does not start: {e}"),
        was_killed: false,
    })?;
    if answer.exit == Some(0) && !answer.timed_out {
        return Ok(());
    }
    let text = [answer.stderr, answer.stdout].concat();
    let text = String::from_utf8_lossy(&text);
    let first_line = text.lines().map(str::trim).find(|line| !line.is_empty());
    let how = match (answer.timed_out, answer.exit) {
        (true, _) => format!("did not end within {} s", COMMAND_WAIT.as_secs()),
        (false, Some(status)) => format!("ended with status {status}"),
        (false, None) => "was killed".to_owned(),
    };
    Err(CommandFailure {
        text: format!("`{name}` {how}: {}", first_line.unwrap_or("it printed nothing")),
        was_killed: answer.timed_out || answer.exit.is_none(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_with_what_the_command_said() {
        let run = |argv: &[&str]| {
            let argv: Vec<String> = argv.iter().map(ToString::to_string).collect();
            super::run(&argv, &BTreeMap::new()).map_err(|failure| failure.text)
        };
        let sh = |script: &str| run(&["/bin/sh", "-c", script]);
        assert_eq!(sh("true"), Ok(()));
        assert_eq!(
            sh("echo; echo ' no permission '; echo more; exit 4"),
            Err("`sh` ended with status 4: no permission".to_owned())
        );
        assert!(run(&["/no/such/tool"]).unwrap_err().starts_with("`tool` does not"));
    }

    #[test]
    fn each_gpu_is_changed_and_restored_and_failed_commands_stay_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        let folder = JobFolder::at(dir.path().to_owned());
        let log = dir.path().join("log");
        let write = |word: &str| {
            let script = format!("echo {word} {} >> '{}'", GpuSetting::UUID, log.display());
            ["/bin/sh", "-c", &script].map(String::from).to_vec()
        };
        let setting = GpuSetting { apply: write("lock"), undo: write("release") };
        assert_eq!(undo(&folder), Ok(()));
        change(&folder, &setting, &["GPU-1", "GPU-2"]).unwrap();
        for _ in 0..2 {
            undo(&folder).unwrap();
        }
        let lines = "lock GPU-1\nlock GPU-2\nrelease GPU-1\nrelease GPU-2\n";
        assert_eq!(std::fs::read_to_string(&log).unwrap(), lines);
        let missing = vec!["/no/such/tool".to_owned()];
        let stuck = GpuSetting { undo: missing.clone(), ..setting.clone() };
        change(&folder, &stuck, &["GPU-1"]).unwrap();
        assert!(undo(&folder).unwrap_err().contains("`tool` does not start"));
        assert!(undo_path(&folder).exists());
        let refused = GpuSetting { apply: missing, ..setting };
        assert!(change(&folder, &refused, &["GPU-1"]).is_err());
        assert!(!undo_path(&folder).exists());
    }

    #[test]
    fn a_gpu_that_cannot_be_restored_after_another_was_refused_is_not_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let folder = JobFolder::at(dir.path().to_owned());
        let (log, allowed) = (dir.path().join("log"), dir.path().join("allowed"));
        let sh = |script: String| ["/bin/sh", "-c", &script].map(String::from).to_vec();
        let (uuid, log_name) = (GpuSetting::UUID, log.display());
        let setting = GpuSetting {
            apply: sh(format!("[ {uuid} = GPU-1 ] || exit 4; echo lock {uuid} >> '{log_name}'")),
            undo: sh(format!(
                "[ -e '{}' ] || {{ echo no {uuid}; exit 5; }}; echo release {uuid} >> '{log_name}'",
                allowed.display()
            )),
        };
        assert!(change(&folder, &setting, &["GPU-1", "GPU-2", "GPU-3"]).is_err());
        assert_eq!(undo(&folder), Err("`sh` ended with status 5: no GPU-1".to_owned()));
        std::fs::write(&allowed, "").unwrap();
        assert_eq!(undo(&folder), Ok(()));
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "lock GPU-1\nrelease GPU-1\n");
        assert!(!undo_path(&folder).exists());
    }

    #[test]
    fn the_next_job_on_a_gpu_undoes_what_an_ended_one_left_and_no_job_on_another_does() {
        let dir = tempfile::tempdir().unwrap();
        let (log, allowed) = (dir.path().join("log"), dir.path().join("allowed"));
        let sh = |script: String| ["/bin/sh", "-c", &script].map(String::from).to_vec();
        let (uuid, log_name) = (GpuSetting::UUID, log.display());
        let undo_script = format!(
            "[ -e '{}' ] || {{ echo no {uuid}; exit 5; }}; echo release {uuid} >> '{log_name}'",
            allowed.display()
        );
        let setting = GpuSetting { apply: sh("true".to_owned()), undo: sh(undo_script) };
        // Two jobs that leave the same are one file for each GPU.
        for job in ["run.1", "run.2"] {
            let folder = JobFolder::at(dir.path().join("jobs").join(job));
            std::fs::create_dir_all(folder.path()).unwrap();
            change(&folder, &setting, &["GPU-1", "GPU-2"]).unwrap();
            undo(&folder).unwrap_err();
            keep_after_end(&folder).unwrap();
            assert!(!undo_path(&folder).exists());
            assert!(keep_after_end(&folder).is_err(), "there is nothing more to keep");
        }
        let left = || std::fs::read_dir(left_folder(dir.path())).unwrap().count();
        assert_eq!(left(), 2);
        let failed = Err("`sh` ended with status 5: no GPU-2".to_owned());
        assert_eq!(undo_left(dir.path(), &["GPU-2"]), failed);
        assert_eq!((undo_left(dir.path(), &["GPU-3"]), left()), (Ok(()), 2));
        std::fs::write(&allowed, "").unwrap();
        for _ in 0..2 {
            assert_eq!((undo_left(dir.path(), &["GPU-2"]), left()), (Ok(()), 1));
        }
        assert_eq!((undo_left(dir.path(), &["GPU-3", "GPU-1"]), left()), (Ok(()), 0));
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "release GPU-2\nrelease GPU-1\n");
        assert_eq!(undo_left(&dir.path().join("new"), &["GPU-1"]), Ok(()));
    }

    #[test]
    fn a_gpu_whose_change_was_killed_is_not_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let folder = JobFolder::at(dir.path().to_owned());
        let sh = |script: &str| ["/bin/sh", "-c", script].map(String::from).to_vec();
        let setting = GpuSetting { apply: sh("kill -9 $$"), undo: sh("echo no {uuid}; exit 5") };
        assert!(change(&folder, &setting, &["GPU-1", "GPU-2"]).is_err());
        assert_eq!(undo(&folder), Err("`sh` ended with status 5: no GPU-1".to_owned()));
    }
}
