//! Judges a finished rung: success, reason code, and where the ladder continues.

use std::path::Path;

use rgpu_protocol::pattern::{Condition, LadderAction, Source};
use rgpu_protocol::plan::HangDetection;
use rgpu_protocol::{DiagnosisRule, Rung, RungRecord, Step};

use super::capture::tail_of;
use super::rung::ProgramResult;

/// Bytes of each stream in a record.
const TAIL_BYTES: usize = 3000;

/// Most bytes of the tool's own message in a record.
const MAX_MESSAGE_BYTES: usize = 500;

/// Where the ladder continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RungVerdict {
    /// Nowhere: the rung gave the result of the step.
    Succeeded,
    /// At the next rung.
    Next,
    /// At the named rung.
    Rung(String),
    /// Nowhere: no lower rung can help.
    Stop,
}

/// Judges a rung that has run. Returns its record and the verdict.
pub(crate) fn judge(
    step: &Step,
    rung: &Rung,
    argv: Vec<String>,
    result: &ProgramResult,
    work: &Path,
) -> (RungRecord, RungVerdict) {
    let stdout = result.stdout.text();
    let stderr = result.stderr.text();
    let mut notes = Vec::new();
    let mut hit = None;
    let failure = plain_failure(step, rung, result, &stdout, &stderr, work);
    for row in &rung.diagnosis {
        if row.when == Condition::Failed && failure.is_none() {
            continue;
        }
        let Some(line) = find(row, &stdout, &stderr) else { continue };
        let message = cut(line);
        if row.then == LadderAction::Note {
            notes.push((row.code.clone(), message));
        } else if hit.is_none() {
            hit = Some((row, message));
        }
    }
    let (mut code, mut message, mut verdict) = match hit {
        Some((row, message)) => (row.code.clone(), message, verdict_of(&row.then)),
        None => match failure {
            Some((code, message)) => (code.to_owned(), message, RungVerdict::Next),
            None => (String::new(), String::new(), RungVerdict::Succeeded),
        },
    };
    if let Some(hang) = &result.hang {
        notes.push((HangDetection::CODE.to_owned(), hang.clone()));
        // A program that hangs would hang on every rung.
        if verdict != RungVerdict::Succeeded {
            (code, verdict) = (HangDetection::CODE.to_owned(), RungVerdict::Stop);
            message = cut(hang);
        }
    }
    if let Some(dropped) = result.dropped_beyond_limit {
        // Another compiler would write to the same log.
        (code, verdict) = (Step::TOO_MUCH_OUTPUT.to_owned(), RungVerdict::Stop);
        let limit = step.max_output_bytes.unwrap_or_default();
        message = format!(
            "it printed more than {} and was stopped; {dropped} bytes were dropped",
            describe_bytes(limit)
        );
    }
    let record = RungRecord {
        step: step.id.clone(),
        rung: rung.id.clone(),
        argv,
        ok: verdict == RungVerdict::Succeeded,
        code,
        message,
        exit: result.exit,
        signal: result.signal,
        start_error: None,
        seconds: result.seconds,
        stdout_tail: tail_of(&stdout, TAIL_BYTES),
        stderr_tail: tail_of(&stderr, TAIL_BYTES),
        loses: rung.loses.clone(),
        notes,
    };
    (record, verdict)
}

fn describe_bytes(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{bytes} bytes"),
        mib => format!("{mib} MiB"),
    }
}

/// Returns the record of a rung that was not run.
pub(crate) fn not_run(step: &Step, rung: &Rung, code: &str, message: String) -> RungRecord {
    RungRecord {
        step: step.id.clone(),
        rung: rung.id.clone(),
        code: code.into(),
        message,
        loses: rung.loses.clone(),
        ..RungRecord::default()
    }
}

fn find<'t>(row: &DiagnosisRule, stdout: &'t str, stderr: &'t str) -> Option<&'t str> {
    match row.source {
        Source::Stdout => row.pattern.find(stdout),
        Source::Stderr => row.pattern.find(stderr),
        Source::Output => row.pattern.find(stderr).or_else(|| row.pattern.find(stdout)),
    }
}

fn verdict_of(then: &LadderAction) -> RungVerdict {
    match then {
        LadderAction::Next | LadderAction::Note => RungVerdict::Next,
        LadderAction::Rung(id) => RungVerdict::Rung(id.clone()),
        LadderAction::Stop => RungVerdict::Stop,
    }
}

/// Returns whether a file exists and is not empty. A `*` in the name matches any text.
fn is_there(work: &Path, path: &str) -> bool {
    let Some((start, end)) = path.split_once('*') else {
        return std::fs::metadata(work.join(path)).is_ok_and(|m| m.len() > 0);
    };
    let (folder, start) = start.rsplit_once('/').unwrap_or(("", start));
    let fits = |name: &str| {
        name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
    };
    std::fs::read_dir(work.join(folder)).is_ok_and(|entries| {
        entries.flatten().any(|entry| {
            entry.file_name().to_str().is_some_and(fits)
                && entry.metadata().is_ok_and(|m| m.len() > 0)
        })
    })
}

/// Returns code and message of a failure that no diagnosis row explains.
fn plain_failure(
    step: &Step,
    rung: &Rung,
    result: &ProgramResult,
    stdout: &str,
    stderr: &str,
    work: &Path,
) -> Option<(&'static str, String)> {
    if result.timed_out {
        return Some((
            "timeout",
            format!("not finished within its time limit of {} s", step.timeout_s),
        ));
    }
    let last_line = || {
        let last = |text: &str| text.lines().rev().find(|l| !l.trim().is_empty()).map(cut);
        last(stderr).or_else(|| last(stdout)).unwrap_or_default()
    };
    if let Some(signal) = result.signal.filter(|_| !result.stopped) {
        // A line of compute-sanitizer's own says nothing about how the program ended.
        let line = Some(last_line()).filter(|line| !line.starts_with("========="));
        return Some(("signal", line.unwrap_or_else(|| format!("ended by signal {signal}"))));
    }
    let allowed = &rung.success.exit;
    if !result.stopped
        && !allowed.is_empty()
        && !result.exit.is_some_and(|exit| allowed.contains(&exit))
    {
        return Some(("exit", last_line()));
    }
    if let Some(file) = rung.success.files.iter().find(|path| !is_there(work, path)) {
        // A tool passes on the status of its program, which may have crashed under it.
        let message = match result.exit {
            Some(exit) if exit != 0 && !result.stopped => {
                format!("{file}; exit status {exit}: {}", last_line())
            }
            _ => file.clone(),
        };
        return Some(("no_file", message));
    }
    let printed = |p: &rgpu_protocol::Pattern| p.find(stdout).or_else(|| p.find(stderr)).is_some();
    let missing = rung.success.prints.iter().find(|p| !printed(p));
    missing.map(|pattern| ("no_words", pattern.0.clone()))
}

/// Trims a line to the length limit of a record.
fn cut(line: &str) -> String {
    let line = line.trim();
    let mut end = line.len().min(MAX_MESSAGE_BYTES);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    line[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge_output(rung: &str, exit: i32, stderr: &str) -> (RungRecord, RungVerdict) {
        let rung: Rung = serde_json::from_str(rung).unwrap();
        let step = Step {
            id: "s".into(),
            title: String::new(),
            gpu: false,
            needs: Vec::new(),
            on_failure: Default::default(),
            timeout_s: 1,
            max_output_bytes: None,
            stdin: Default::default(),
            rungs: Vec::new(),
        };
        let mut result = ProgramResult { exit: Some(exit), ..ProgramResult::default() };
        result.stderr.add(stderr.as_bytes());
        judge(&step, &rung, Vec::new(), &result, Path::new("/nowhere"))
    }

    const NCU: &str = r#"{"id":"r","argv":["x"],"diagnosis":[
        {"pattern":"WARNING","code":"warned","then":"note"},
        {"pattern":"ERR_NVGPUCTRPERM","code":"counters_refused","then":{"rung":"nsys"}},
        {"pattern":"compile error","code":"user_code","then":"stop"}]}"#;

    #[test]
    fn words_fail_a_rung_whose_exit_status_is_fine() {
        let (record, verdict) =
            judge_output(NCU, 0, "==WARNING== x\n==ERROR== ERR_NVGPUCTRPERM - no\n");
        assert_eq!(verdict, RungVerdict::Rung("nsys".into()));
        assert_eq!((record.ok, record.code.as_str()), (false, "counters_refused"));
        assert_eq!(record.message, "==ERROR== ERR_NVGPUCTRPERM - no");
        assert_eq!(record.notes, [("warned".into(), "==WARNING== x".into())]);
    }

    #[test]
    fn a_note_alone_fails_nothing() {
        assert_eq!(judge_output(NCU, 0, "WARNING").1, RungVerdict::Succeeded);
    }

    #[test]
    fn what_no_row_explains_goes_down_the_ladder_with_the_last_line() {
        let (record, verdict) = judge_output(NCU, 3, "one\nlast words\n\n");
        assert_eq!((verdict, record.code.as_str()), (RungVerdict::Next, "exit"));
        assert_eq!(record.message, "last words");
        let rung = r#"{"id":"r","argv":["x"],"success":{"files":["out"]}}"#;
        assert_eq!(judge_output(rung, 0, "").0.code, "no_file");
        let any_status = r#"{"id":"r","argv":["x"],"success":{"files":["out"],"exit":[]}}"#;
        let (record, _) = judge_output(any_status, 139, "Segmentation fault\n");
        assert_eq!(record.message, "out; exit status 139: Segmentation fault");
        let rung = r#"{"id":"r","argv":["x"],"success":{"prints":["SUMMARY"]}}"#;
        assert_eq!(judge_output(rung, 0, "").0.code, "no_words");
    }

    #[test]
    fn words_that_only_explain_a_failure_fail_nothing_by_themselves() {
        let rung = r#"{"id":"r","argv":["x"],"diagnosis":[
            {"pattern":"error:","code":"does_not_compile","when":"failed","then":"stop"}]}"#;
        let warning = "k.cu(3): warning: unused\n  printf(\"error: %d\", n);\n";
        assert_eq!(judge_output(rung, 0, warning).1, RungVerdict::Succeeded);
        let (record, verdict) = judge_output(rung, 1, "k.cu(3): error: no\n");
        assert_eq!((verdict, record.code.as_str()), (RungVerdict::Stop, "does_not_compile"));
    }

    #[test]
    fn a_star_in_a_wanted_file_stands_for_what_nobody_knows_before() {
        let work = tempfile::tempdir().unwrap();
        std::fs::create_dir(work.path().join("raw")).unwrap();
        assert!(!is_there(work.path(), "raw/nvtx.jsonl.*"));
        std::fs::write(work.path().join("raw/nvtx.jsonl.12"), "").unwrap();
        assert!(!is_there(work.path(), "raw/nvtx.jsonl.*"));
        std::fs::write(work.path().join("raw/nvtx.jsonl.12"), "{}").unwrap();
        assert!(is_there(work.path(), "raw/nvtx.jsonl.*"));
        assert!(!is_there(work.path(), "raw/*.nvtx"));
    }

    #[test]
    fn the_status_of_a_stopped_program_is_no_failure() {
        let step: Step =
            serde_json::from_str(r#"{"id":"s","title":"","timeout_s":1,"rungs":[]}"#).unwrap();
        let rung: Rung =
            serde_json::from_str(r#"{"id":"r","argv":["x"],"success":{"files":["out"]}}"#).unwrap();
        let work = tempfile::tempdir().unwrap();
        let code = |stopped, exit, signal| {
            let result = ProgramResult { stopped, exit, signal, ..ProgramResult::default() };
            judge(&step, &rung, Vec::new(), &result, work.path()).0.code
        };
        // Its report is still needed.
        assert_eq!(code(true, Some(130), None), "no_file");
        std::fs::write(work.path().join("out"), "x").unwrap();
        assert_eq!((code(true, Some(130), None), code(true, None, Some(2))), Default::default());
        assert_eq!(code(false, Some(130), None), "exit");
        assert_eq!(code(false, None, Some(2)), "signal");
    }

    #[test]
    fn output_beyond_the_limit_of_the_step_fails_it_whatever_the_status() {
        let step = r#"{"id":"s","title":"","timeout_s":1,"max_output_bytes":67108864,"rungs":[]}"#;
        let step: Step = serde_json::from_str(step).unwrap();
        let rung: Rung = serde_json::from_str(NCU).unwrap();
        let result =
            ProgramResult { dropped_beyond_limit: Some(5), exit: Some(0), ..Default::default() };
        let (record, verdict) = judge(&step, &rung, Vec::new(), &result, Path::new("/nowhere"));
        assert_eq!((verdict, record.ok), (RungVerdict::Stop, false));
        assert_eq!(record.code, "too_much_output");
        let told = "it printed more than 64 MiB and was stopped; 5 bytes were dropped";
        assert_eq!(record.message, told);
    }

    #[test]
    fn a_row_may_say_that_no_rung_helps() {
        assert_eq!(judge_output(NCU, 1, "compile error").1, RungVerdict::Stop);
    }
}
