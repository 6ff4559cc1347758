//! Runs probes: finds a file, runs or reads it, and filters lines. Only the laptop interprets the
//! text.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rgpu_protocol::{Probe, ProbeAnswer};

use crate::command::ask_unless;
use crate::setup::ConnectionSettings;
use crate::supervisor::{find_on_path, is_program};

/// Most files listed in an answer.
const MAX_FILES: usize = 16;

/// Most bytes of text in an answer.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// Runs one probe. Setting `stop` ends its program.
pub(crate) fn answer(probe: &Probe, setup: &ConnectionSettings, stop: &AtomicBool) -> ProbeAnswer {
    let mut answer = ProbeAnswer { name: probe.name.clone(), ..ProbeAnswer::default() };
    let mut argv = probe.run.clone().unwrap_or_default();
    let find: Vec<&str> = match argv.first() {
        Some(program) if probe.find.is_empty() => vec![program],
        _ => probe.find.iter().map(String::as_str).collect(),
    };
    let found = search(&find, setup);
    answer.found = found.iter().take(MAX_FILES).map(|p| p.display().to_string()).collect();
    answer.path = answer.found.first().cloned();
    let Some(path) = &answer.path else { return answer };
    let text = if probe.read {
        read(Path::new(path)).map(|text| (None, text))
    } else if probe.run.is_some() {
        if probe.find.is_empty() {
            argv[0].clone_from(path);
        } else {
            argv.insert(0, path.clone());
        }
        run(&argv, probe.timeout_s, setup, stop)
    } else {
        return answer;
    };
    match text {
        Ok((exit, text)) => {
            answer.exit = exit;
            answer.text = filter_lines(probe, &text);
        }
        Err(why) => answer.error = Some(why),
    }
    answer
}

fn run(
    argv: &[String],
    timeout_s: u64,
    setup: &ConnectionSettings,
    stop: &AtomicBool,
) -> Result<(Option<i32>, String), String> {
    let answer =
        ask_unless(argv, setup.env(), MAX_TEXT_BYTES, Duration::from_secs(timeout_s), stop)
            .map_err(|e| format!("`{}` does not start: {e}", argv[0]))?;
    if answer.timed_out {
        return Err(format!("`{}` did not answer within {timeout_s} s", argv[0]));
    }
    let mut text = String::from_utf8_lossy(&answer.stdout).into_owned();
    if !text.is_empty() && !text.ends_with('\n') && !answer.stderr.is_empty() {
        text.push('\n');
    }
    text.push_str(&String::from_utf8_lossy(&answer.stderr));
    Ok((answer.exit, text))
}

fn read(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|f| f.take(MAX_TEXT_BYTES as u64).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(e) => Err(format!("`{}` cannot be read: {e}", path.display())),
    }
}

/// Returns the lines that the probe asks for, up to the limit.
fn filter_lines(probe: &Probe, text: &str) -> String {
    let is_requested =
        |line: &&str| probe.keep.is_empty() || probe.keep.iter().any(|p| p.find(line).is_some());
    let mut kept = String::new();
    for line in text.lines().filter(is_requested) {
        if kept.len() + line.len() + 1 > MAX_TEXT_BYTES {
            break;
        }
        kept.push_str(line);
        kept.push('\n');
    }
    kept
}

/// Returns every file that the names, paths and globs match, best first, without duplicates.
fn search(find: &[&str], setup: &ConnectionSettings) -> Vec<PathBuf> {
    let path = setup.var("PATH").unwrap_or_default();
    let home = setup.var("HOME");
    let mut found: Vec<PathBuf> = Vec::new();
    for pattern in find {
        let files = match (pattern.strip_prefix("~/"), &home) {
            (Some(rest), Some(home)) => glob(&format!("{home}/{rest}")),
            (Some(_), None) => Vec::new(),
            (None, _) if pattern.starts_with('/') => glob(pattern),
            (None, _) => find_on_path(pattern, &path).into_iter().collect(),
        };
        for file in files {
            if !found.contains(&file) {
                found.push(file);
            }
        }
    }
    // A folder of that name is no match. Programs get no preference: the order in the probe
    // decides.
    found.retain(|p| p.exists() && (is_program(p) || !p.is_dir()));
    found
}

/// Returns the files that match an absolute pattern, the last in natural order first. `*` stays
/// within one part.
fn glob(pattern: &str) -> Vec<PathBuf> {
    let mut paths = vec![PathBuf::from("/")];
    for part in pattern.split('/').filter(|p| !p.is_empty()) {
        if !part.contains('*') {
            paths.iter_mut().for_each(|p| p.push(part));
            continue;
        }
        let mut next = Vec::new();
        for folder in &paths {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let names = entries.filter_map(|e| e.file_name().into_string().ok());
            let mut names: Vec<String> =
                names.filter(|n| rgpu_protocol::glob::matches(part, n)).collect();
            names.sort_by_key(|name| std::cmp::Reverse(natural(name)));
            next.extend(names.into_iter().map(|n| folder.join(n)));
        }
        paths = next;
    }
    paths.retain(|p| p.exists());
    paths
}

/// Returns a key that sorts `2023.3` before `2025.1` and `9` before `10`.
fn natural(name: &str) -> Vec<(u64, String)> {
    let mut key = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let text = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (text_part, after) = rest.split_at(text);
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let (number, after) = after.split_at(digits);
        key.push((0, text_part.to_owned()));
        if !number.is_empty() {
            key.push((number.parse().unwrap_or(u64::MAX), String::new()));
        }
        rest = after;
    }
    key
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn probe(json: &str) -> ProbeAnswer {
        let stop = AtomicBool::new(false);
        answer(&serde_json::from_str(json).unwrap(), &ConnectionSettings::default(), &stop)
    }

    #[test]
    fn of_several_versions_the_newest_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        for version in ["cuda-9.2", "cuda-12.8", "cuda-12.10"] {
            let bin = dir.path().join(version).join("bin");
            std::fs::create_dir_all(&bin).unwrap();
            let tool = bin.join("nvcc");
            std::fs::write(&tool, format!("#!/bin/sh\necho {version}; echo noise\n")).unwrap();
            std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let found = probe(&format!(
            r#"{{"name":"nvcc","find":["no-such-nvcc","{}/cuda-*/bin/nvcc"],"run":[],"keep":["cuda"]}}"#,
            dir.path().display()
        ));
        assert_eq!(found.text, "cuda-12.10\n");
        assert!(found.path.unwrap().contains("12.10"));
        let order: Vec<_> = found.found.iter().map(|p| p.rsplit('/').nth(2).unwrap()).collect();
        assert_eq!(order, ["cuda-12.10", "cuda-12.8", "cuda-9.2"]);
    }

    #[test]
    fn a_program_without_a_place_is_found_on_the_path() {
        let found = probe(r#"{"name":"x","run":["echo","hello"]}"#);
        assert_eq!((found.text.as_str(), found.exit), ("hello\n", Some(0)));
        let none = probe(r#"{"name":"x","run":["no-such-tool-here"]}"#);
        assert_eq!((none.path, none.error), (None, None));
    }

    #[test]
    fn a_probe_that_hangs_says_so() {
        let hung = probe(r#"{"name":"x","run":["sleep","30"],"timeout_s":0}"#);
        assert!(hung.error.unwrap().contains("did not answer"));
    }

    #[test]
    fn a_file_is_read_without_running_it() {
        let read = probe(r#"{"name":"x","find":["/proc/version"],"read":true,"keep":["Linux"]}"#);
        assert!(read.text.contains("Linux"));
    }
}
