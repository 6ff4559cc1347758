//! Rungs that failed on a host for a reason of the host's own: refused counters, an importer without
//! its library. They are remembered and passed over, so that a second run does not wait for the same
//! failure again.
//!
//! What is remembered is believed for the same host, boot, user, driver and version of the tool, for
//! a day. `rgpu doctor` tries everything, and forgets what works again.

use std::path::PathBuf;

use jiff::Timestamp;
use rgpu_protocol::{HostFacts, RungRecord};
use serde::{Deserialize, Serialize};

use crate::store::atomic;
use crate::tool::{self, FailedRung};

/// How long a failure is believed, in seconds: hosts are mended without a reboot.
const MAX_FAILURE_AGE_S: i64 = 24 * 3600;
/// Of a tool's own words so many characters are repeated.
const MAX_TOOL_WORDS_CHARS: usize = 120;

/// What failed on one remote.
pub struct FailedRungs {
    path: PathBuf,
    remote: String,
}

#[derive(Default, Serialize, Deserialize)]
struct StoredFailures {
    failed: Vec<StoredFailure>,
}

#[derive(Serialize, Deserialize)]
struct StoredFailure {
    /// Of what host and tool it is true.
    key: String,
    rung: String,
    code: String,
    words: String,
    at_s: i64,
}

impl FailedRungs {
    /// Those of the remote that is called `remote`, kept in the file `path`.
    pub(super) fn new(path: PathBuf, remote: &str) -> Self {
        Self { path, remote: remote.to_owned() }
    }

    /// What need not be tried again on a host with these facts.
    pub fn known(&self, facts: &HostFacts, now_s: i64) -> Vec<FailedRung> {
        let kept = self.load().failed.into_iter();
        kept.filter(|failed| failed.holds(facts, now_s))
            .map(|failed| FailedRung { words: self.words(&failed), ..failed.rung() })
            .collect()
    }

    /// Takes in how rungs went: those that failed for a reason that lasts are remembered, those that
    /// worked forgotten.
    pub fn learn(&self, facts: &HostFacts, ladder: &[RungRecord], now_s: i64) {
        let mut kept = self.load();
        let before = kept.failed.len();
        kept.failed.retain(|failed| {
            failed.holds(facts, now_s) && !ladder.iter().any(|r| r.ok && r.rung == failed.rung)
        });
        let mut changed = kept.failed.len() != before;
        for record in ladder {
            // One that was passed over was not tried.
            if record.ok || record.argv.is_empty() || !tool::lasts(&record.code) {
                continue;
            }
            let failed = StoredFailure {
                key: key(facts, &record.rung),
                rung: record.rung.clone(),
                code: record.code.clone(),
                words: record.words.chars().take(MAX_TOOL_WORDS_CHARS).collect(),
                at_s: now_s,
            };
            kept.failed.retain(|known| known.rung != failed.rung);
            kept.failed.push(failed);
            changed = true;
        }
        if changed && let Ok(bytes) = serde_json::to_vec(&kept) {
            // What cannot be written is tried again, nothing else.
            let _ = atomic::write(&self.path, &bytes);
        }
    }

    /// Forgets everything.
    pub fn forget(&self) {
        // What was never there is forgotten as well.
        let _ = std::fs::remove_file(&self.path);
    }

    fn load(&self) -> StoredFailures {
        let bytes = std::fs::read(&self.path).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    fn words(&self, failed: &StoredFailure) -> String {
        let at = Timestamp::from_second(failed.at_s).map(|at| at.strftime("%F %R UTC").to_string());
        let said = match failed.words.is_empty() {
            true => String::new(),
            false => format!(" ({})", failed.words),
        };
        format!(
            "skipped: failed on {} with {}{said}; `rgpu doctor {} --fresh` forgets that",
            at.unwrap_or_default(),
            failed.code,
            self.remote,
        )
    }
}

impl StoredFailure {
    fn holds(&self, facts: &HostFacts, now_s: i64) -> bool {
        (0..MAX_FAILURE_AGE_S).contains(&(now_s - self.at_s)) && self.key == key(facts, &self.rung)
    }

    fn rung(&self) -> FailedRung {
        FailedRung { rung: self.rung.clone(), code: self.code.clone(), words: String::new() }
    }
}

/// Host, boot, user, driver, and the tool of a rung with its version: a change of any of them is a
/// reason to try again.
fn key(facts: &HostFacts, rung: &str) -> String {
    let tool = rung.split('.').next().unwrap_or(rung);
    let tool = facts.tool(tool).map_or(String::new(), |t| format!("{} {}", t.path, t.version));
    let driver = facts.driver.as_deref().unwrap_or_default();
    [facts.key().as_str(), &facts.agent.user, driver, &tool].join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_protocol::probe::ToolFacts;

    fn host(boot: &str, ncu: &str) -> HostFacts {
        let mut facts = HostFacts::default();
        facts.agent.boot_id = boot.to_owned();
        facts.tools.push(ToolFacts {
            name: "ncu".to_owned(),
            path: "/usr/bin/ncu".to_owned(),
            version: ncu.to_owned(),
            problems: Vec::new(),
        });
        facts
    }

    fn record(rung: &str, ok: bool, code: &str) -> RungRecord {
        RungRecord {
            rung: rung.to_owned(),
            argv: vec!["ncu".to_owned()],
            ok,
            code: code.to_owned(),
            words: "==ERROR== no".to_owned(),
            ..RungRecord::default()
        }
    }

    #[test]
    fn a_failure_is_known_for_a_day_on_the_same_boot_with_the_same_tool() {
        let folder = tempfile::tempdir().unwrap();
        let failed = FailedRungs::new(folder.path().join("failed.json"), "h200");
        let facts = host("1", "2025.3");
        let ladder = [
            record("ncu.asked", false, "counters_refused"),
            record("ncu.basic", false, "timeout"),
            RungRecord { argv: Vec::new(), ..record("nsys.full", false, "importer_broken") },
            record("ncu.launch", true, ""),
        ];
        failed.learn(&facts, &ladder, 1_795_000_000);
        let known = failed.known(&facts, 1_795_000_100);
        let rungs: Vec<_> = known.iter().map(|f| (f.rung.as_str(), f.code.as_str())).collect();
        assert_eq!(rungs, [("ncu.asked", "counters_refused")]);
        assert_eq!(
            known[0].words,
            "skipped: failed on 2026-11-18 11:06 UTC with counters_refused (==ERROR== no); \
             `rgpu doctor h200 --fresh` forgets that"
        );
        for (facts, now_s) in [
            (host("2", "2025.3"), 1_795_000_100),
            (host("1", "2026.1"), 1_795_000_100),
            (host("1", "2025.3"), 1_795_000_000 + MAX_FAILURE_AGE_S),
        ] {
            assert!(failed.known(&facts, now_s).is_empty());
        }
    }

    #[test]
    fn what_works_again_is_forgotten_and_so_is_everything_on_demand() {
        let folder = tempfile::tempdir().unwrap();
        let failed = FailedRungs::new(folder.path().join("failed.json"), "h200");
        let facts = host("1", "2025.3");
        let refused = [record("ncu.asked", false, "counters_refused")];
        failed.learn(&facts, &refused, 10);
        failed.learn(&facts, &[record("ncu.asked", true, "")], 20);
        assert!(failed.known(&facts, 30).is_empty());
        failed.learn(&facts, &refused, 40);
        failed.forget();
        assert!(failed.known(&facts, 50).is_empty());
    }
}
