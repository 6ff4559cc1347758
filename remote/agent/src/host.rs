//! Facts about the host that the agent collects itself.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rgpu_protocol::probe::{AgentFacts, facts_key};
use rgpu_protocol::program_needs::GlibcVersion;
use rgpu_protocol::{Digest, Probe, ProbeAnswer};

use crate::command::ask;
use crate::probe;
use crate::setup::ConnectionSettings;

/// Runs all probes in parallel, each in a thread, and adds facts about the host. Setting `stop`
/// ends the programs that probes run.
pub fn facts(
    probes: &[Probe],
    folder: &str,
    setup: &ConnectionSettings,
    stop: &AtomicBool,
) -> AgentFacts {
    let (answers, glibc) = std::thread::scope(|scope| {
        let glibc = scope.spawn(glibc);
        let threads: Vec<_> =
            probes.iter().map(|p| scope.spawn(|| probe::answer(p, setup, stop))).collect();
        let answers = threads.into_iter().zip(probes).map(|(thread, probe)| {
            thread.join().unwrap_or_else(|_| ProbeAnswer {
                name: probe.name.clone(),
                error: Some("a defect of the agent".into()),
                ..ProbeAnswer::default()
            })
        });
        (answers.collect(), glibc.join().unwrap_or_default())
    });
    let uts = rustix::system::uname();
    let uid = rustix::process::geteuid();
    AgentFacts {
        host_id: host_id(),
        boot_id: boot_id(),
        hostname: uts.nodename().to_string_lossy().into_owned(),
        os: os_name(),
        arch: uts.machine().to_string_lossy().into_owned(),
        kernel: uts.release().to_string_lossy().into_owned(),
        user: user_name(uid.as_raw()),
        root: uid.is_root(),
        cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        memory_bytes: memory_bytes(),
        agent: env!("CARGO_PKG_VERSION").into(),
        folder: folder.into(),
        glibc,
        answers,
    }
}

/// Cuts the answers' texts, if necessary, to `limit` bytes in all.
pub fn shorten(facts: &mut AgentFacts, limit: usize) {
    if facts.answers.iter().map(|a| a.text.len()).sum::<usize>() <= limit {
        return;
    }
    let each = limit / facts.answers.len().max(1);
    for answer in &mut facts.answers {
        let mut end = answer.text.len().min(each);
        while !answer.text.is_char_boundary(end) {
            end -= 1;
        }
        answer.text.truncate(end);
    }
}

/// Returns the key that plans carry, so that a changed host is noticed.
pub fn key() -> String {
    facts_key(&host_id(), &boot_id())
}

/// Returns a hash of the machine id, or of the host name where there is no id (containers).
fn host_id() -> String {
    let read = |path: &str| fs::read_to_string(path).ok().filter(|id| !id.trim().is_empty());
    let id = read("/etc/machine-id").or_else(|| read("/var/lib/dbus/machine-id"));
    let id =
        id.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    Digest::sha256(format!("rgpu host {}", id.trim()).as_bytes()).to_string()
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn os_name() -> String {
    let text = fs::read_to_string("/etc/os-release")
        .or_else(|_| fs::read_to_string("/usr/lib/os-release"))
        .unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="));
    line.unwrap_or_default().trim_matches('"').to_owned()
}

fn memory_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Returns the version of the host's glibc, which may differ from the one the agent was built for.
/// Containers have no `getconf`, but glibc itself prints its version when run as a program.
fn glibc() -> String {
    let script = "getconf GNU_LIBC_VERSION||for l in /lib64/libc.so.6 /lib/*-gnu/libc.so.6 \
                  /lib/libc.so.6;do $l&&break;done";
    let argv = ["/bin/sh", "-c", script].map(String::from);
    let answer = ask(&argv, &BTreeMap::new(), 1000, Duration::from_secs(2)).unwrap_or_default();
    let version = GlibcVersion::from_host_text(&String::from_utf8_lossy(&answer.stdout));
    version.map(|v| v.to_string()).unwrap_or_default()
}

/// Returns the name of a user, or the number if it has none.
pub(crate) fn user_name(uid: u32) -> String {
    let users = fs::read_to_string(Path::new("/etc/passwd")).unwrap_or_default();
    let named = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| uid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_known_by_stable_ids() {
        let facts = facts(&[], "/x", &ConnectionSettings::default(), &AtomicBool::new(false));
        assert_eq!(facts_key(&facts.host_id, &facts.boot_id), key());
        assert_eq!(facts.host_id.len(), 64);
        assert!(facts.memory_bytes > 0 && facts.cpus > 0);
        assert_eq!(user_name(0), "root");
    }
}
