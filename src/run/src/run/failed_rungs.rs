//! Remembers rungs that failed on a host for a lasting reason of the host: refused counters, an
//! importer without its library. Later runs skip them instead of waiting for the same failure.
//!
//! A failure is remembered for a day, for the same host, boot, user, driver and version of the
//! tool. `rgpu doctor` tries everything and forgets failures that no longer occur.

#![expect(clippy::disallowed_methods, reason = "rgpu's own cache")]

use std::path::PathBuf;

use jiff::Timestamp;
use rgpu_protocol::{HostFacts, RungRecord};
use serde::{Deserialize, Serialize};

use crate::saved_json;
use crate::store::atomic;
use rgpu_model::RungId;
use rgpu_plan::tool::{self, FailedRung, RungInfo};

/// A failure is forgotten after this many seconds: hosts are repaired without a reboot.
const MAX_FAILURE_AGE_S: i64 = 24 * 3600;
/// Most characters of a tool's message that are stored.
const MAX_MESSAGE_CHARS: usize = 120;

/// The rungs that failed on one remote.
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
    /// The host and tool that the failure applies to; see [`key`].
    key: String,
    rung: RungId,
    code: String,
    message: String,
    at_s: i64,
}

impl FailedRungs {
    /// The failures of the remote named `remote`, stored in the file `path`.
    pub(super) fn new(path: PathBuf, remote: &str) -> Self {
        Self { path, remote: remote.to_owned() }
    }

    /// The rungs to skip on a host with these facts.
    pub fn known(&self, facts: &HostFacts, now_s: i64) -> Vec<FailedRung> {
        let stored = self.load().failed.into_iter();
        stored
            .filter(|failed| failed.applies_to(facts, now_s))
            .map(|failed| FailedRung { message: self.skip_text(&failed), ..failed.rung() })
            .collect()
    }

    /// Updates the stored failures from a ladder: stores rungs that failed for a lasting reason,
    /// removes those that worked.
    pub fn update(&self, facts: &HostFacts, ladder: &[RungRecord], now_s: i64) {
        let mut stored = self.load();
        let before = stored.failed.len();
        stored.failed.retain(|failed| {
            failed.applies_to(facts, now_s) && !ladder.iter().any(|r| r.ok && r.rung == failed.rung)
        });
        let mut changed = stored.failed.len() != before;
        for record in ladder {
            // A skipped rung was not tried.
            if record.ok || record.argv.is_empty() || !tool::lasts(&record.code) {
                continue;
            }
            let rung = RungId::from(&*record.rung);
            let failed = StoredFailure {
                key: key(facts, &rung),
                rung,
                code: record.code.clone(),
                message: record.message.chars().take(MAX_MESSAGE_CHARS).collect(),
                at_s: now_s,
            };
            stored.failed.retain(|known| known.rung != failed.rung);
            stored.failed.push(failed);
            changed = true;
        }
        if changed && let Ok(bytes) = serde_json::to_vec(&stored) {
            // If it cannot be written, the rung is tried again next time.
            let _ = atomic::write_private(&self.path, &bytes);
        }
    }

    /// Removes all stored failures of this remote.
    pub fn forget(&self) {
        // The file may not exist.
        let _ = std::fs::remove_file(&self.path);
    }

    fn load(&self) -> StoredFailures {
        saved_json::read_cached(&self.path).unwrap_or_default()
    }

    fn skip_text(&self, failed: &StoredFailure) -> String {
        let at = Timestamp::from_second(failed.at_s).map(|at| at.strftime("%F %R UTC").to_string());
        let details = if failed.message.is_empty() {
            String::new()
        } else {
            format!(" ({})", failed.message)
        };
        format!(
            "skipped: failed on {} with {}{details}; `rgpu doctor {} --fresh` forgets that",
            at.unwrap_or_default(),
            failed.code,
            self.remote,
        )
    }
}

impl StoredFailure {
    fn applies_to(&self, facts: &HostFacts, now_s: i64) -> bool {
        (0..MAX_FAILURE_AGE_S).contains(&(now_s - self.at_s)) && self.key == key(facts, &self.rung)
    }

    fn rung(&self) -> FailedRung {
        FailedRung { rung: self.rung.clone(), code: self.code.clone(), message: String::new() }
    }
}

/// Host, boot, user, driver, and the rung's tool with its version. If any of them changes, the rung
/// is tried again.
fn key(facts: &HostFacts, rung: &RungId) -> String {
    let tool = RungInfo::find(rung).and_then(|info| facts.tool(info.tool.name()?));
    let tool = tool.map_or(String::new(), |t| format!("{} {}", t.path, t.version));
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
            message: "==ERROR== no".to_owned(),
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
        failed.update(&facts, &ladder, 1_795_000_000);
        let known = failed.known(&facts, 1_795_000_100);
        let rungs: Vec<_> = known.iter().map(|f| (f.rung.as_str(), f.code.as_str())).collect();
        assert_eq!(rungs, [("ncu.asked", "counters_refused")]);
        assert_eq!(
            known[0].message,
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
        failed.update(&facts, &refused, 10);
        failed.update(&facts, &[record("ncu.asked", true, "")], 20);
        assert!(failed.known(&facts, 30).is_empty());
        failed.update(&facts, &refused, 40);
        failed.forget();
        assert!(failed.known(&facts, 50).is_empty());
    }
}
