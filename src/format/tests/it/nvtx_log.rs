//! Tests the reader of the collector's log.

use crate::{damage, fixture};
use rgpu_format::nvtx_log::{self, EventKind, NvtxLogError};

const LOG: &str = r#"{"event":"opened","format":1,"pid":7,"ppid":1,"exe":"/bin/app","clock":"monotonic","ns":100,"unix_ns":1700000000000000000,"limit_bytes":268435456}
{"event":"push","ns":110,"tid":7,"domain":0,"level":0,"message":"A"}
{"event":"domain","domain":1,"name":"rgpu"}
{"event":"start","ns":115,"tid":7,"domain":1,"id":1,"message":"whole","payload":3.5}
{"event":"push","ns":120,"tid":7,"domain":0,"level":1,"message":"A1","category":2,"color":4278190335}
{"event":"pop","ns":130,"tid":7,"domain":0,"level":1}
{"event":"thread","tid":8,"name":"worker"}
{"event":"end","ns":140,"tid":8,"domain":1,"id":1}
{"event":"mark","ns":141,"tid":8,"domain":0,"message":"here"}
{"event":"counter","ns":142}
{"event":"pop","ns":150,"tid":7,"domain":0,"level":0}
{"event":"closed","ns":160,"events":7,"dropped":0,"unbalanced":0}
"#;

#[test]
fn a_log_gives_its_events_names_and_end() {
    let log = nvtx_log::read(LOG.as_bytes()).unwrap();
    let session = &log.sessions[0];
    assert_eq!(session.opened.exe.as_deref(), Some("/bin/app"));
    assert_eq!(session.domains[&1], "rgpu");
    assert_eq!(session.threads[&8], "worker");
    assert_eq!(session.events.len(), 7);
    let start = &session.events[1];
    assert_eq!((start.kind, start.id, start.domain), (EventKind::Start, Some(1), 1));
    assert_eq!(start.payload, Some(3.5));
    assert_eq!(session.events[2].message.as_deref(), Some("A1"));
    assert_eq!(session.closed.as_ref().unwrap().events, 7);
    assert_eq!((log.unknown_lines, log.broken_lines), (1, 0));
}

#[test]
fn an_exec_starts_a_second_session() {
    let twice = format!("{LOG}{LOG}");
    let log = nvtx_log::read(twice.as_bytes()).unwrap();
    assert_eq!(log.sessions.len(), 2);
    assert_eq!(log.sessions[0].events, log.sessions[1].events);
}

#[test]
fn a_cut_last_line_is_counted_with_its_place() {
    let cut = &LOG[..LOG.len() - 20];
    let log = nvtx_log::read(cut.as_bytes()).unwrap();
    assert_eq!(log.broken_lines, 1);
    assert_eq!(log.first_broken, Some(LOG.find(r#"{"event":"closed""#).unwrap() as u64));
    assert_eq!(log.sessions[0].closed, None);
}

#[test]
fn other_files_and_newer_formats_are_refused() {
    assert!(matches!(nvtx_log::read(b"hello\n"), Err(NvtxLogError::NotALog { .. })));
    let error = nvtx_log::read(b"\xaa\n").unwrap_err().to_string();
    assert!(error.ends_with(r"it starts with `\xaa`"), "{error}");
    assert!(matches!(nvtx_log::read(b""), Err(NvtxLogError::NotALog { .. })));
    let newer = LOG.replace("\"format\":1", "\"format\":2");
    let error = nvtx_log::read(newer.as_bytes()).unwrap_err();
    assert_eq!(error, NvtxLogError::UnsupportedFormat { format: 2, offset: 0 });
}

#[test]
fn damaged_logs_never_panic() {
    let read = |bytes: &[u8]| drop(nvtx_log::read(bytes));
    damage::cut_everywhere(LOG.as_bytes(), read);
    damage::flip_bits(LOG.as_bytes(), 5_000, read);
    for path in fixture::files("nvtx", ".jsonl") {
        let data = std::fs::read(path).unwrap();
        assert_eq!(nvtx_log::read(&data).unwrap().broken_lines, 0);
        damage::cut_everywhere(&data, read);
    }
}
