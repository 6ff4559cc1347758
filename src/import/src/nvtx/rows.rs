//! The collector's logs as rows of a trace.

use std::convert::Infallible;

use rgpu_format::demangle::{demangle, short};
use rgpu_format::nsys_row::{
    ApiCall, CopyKind, GraphLaunch, Kernel, Memcpy, Memset, NvtxEvent, NvtxKind, StringId, Strings,
};
use rgpu_format::nvtx_log::{LoggedWork, LoggedWorkKind, NvtxLog, Session};

use super::paired::PairedRanges;
use crate::nsys::rows::TraceRows;

/// Logs of several processes. Each session counts as one process, since thread ids and call ids are
/// only unique within a session.
pub(super) struct LogRows<'a> {
    log: &'a NvtxLog,
    paired: &'a PairedRanges<'a>,
    /// The number of each session's first name.
    first_names: Vec<i64>,
}

/// Each name is stored in three forms: mangled, demangled, and without arguments.
const FORMS: i64 = 3;

impl<'a> LogRows<'a> {
    pub(super) fn new(log: &'a NvtxLog, paired: &'a PairedRanges<'a>) -> Self {
        let mut next = 0;
        let first_names = log.sessions.iter().map(|session| {
            let first = next;
            let last = session.names.keys().next_back();
            next += last.map_or(0, |last| (i64::from(*last) + 1) * FORMS);
            first
        });
        Self { log, paired, first_names: first_names.collect() }
    }

    fn sessions(&self) -> impl Iterator<Item = (i64, i64, &'a Session)> {
        let numbered = (0i64..).zip(&self.log.sessions).zip(&self.first_names);
        numbered.map(|((number, session), first)| (process(number), *first, session))
    }

    fn each_work(&self, mut row: impl FnMut(i64, i64, &LoggedWork, (i64, i64))) {
        for (process, first, session) in self.sessions() {
            for work in &session.work {
                if let Some((start, end)) = work.span_ns {
                    row(process, first, work, (nanos(start), nanos(end)));
                }
            }
        }
    }
}

/// A session's number in the format of nsys's ids, where the process is above the lowest 24 bits.
fn process(number: i64) -> i64 {
    number << 24
}

fn nanos(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

fn thread(process: i64, tid: u64) -> i64 {
    process | (tid & 0xff_ffff).cast_signed()
}

fn string(first: i64, name: u32, form: i64) -> StringId {
    first + i64::from(name) * FORMS + form
}

impl TraceRows for LogRows<'_> {
    type Error = Infallible;

    fn strings(&self) -> Result<Strings, Infallible> {
        let named = self.sessions().flat_map(|(_, first, session)| {
            session.names.iter().flat_map(move |(number, name)| {
                let whole = demangle(name).unwrap_or_else(|| name.clone());
                let bare = short(&whole).to_owned();
                let forms = [name.clone(), whole, bare].into_iter().zip(0..);
                forms.map(move |(text, form)| (string(first, *number, form), text))
            })
        });
        Ok(named.collect())
    }

    fn kernels(&self, mut row: impl FnMut(Kernel)) -> Result<(), Infallible> {
        self.each_work(|process, first, work, (start_ns, end_ns)| {
            let LoggedWorkKind::Kernel(facts) = &work.kind else { return };
            row(Kernel {
                start_ns,
                end_ns,
                device: Some(work.device),
                context: Some(work.context),
                stream: Some(work.stream),
                correlation: Some(i64::from(work.id)),
                global_pid: Some(process),
                mangled: facts.name.map(|name| string(first, name, 0)),
                demangled: facts.name.map(|name| string(first, name, 1)),
                short: facts.name.map(|name| string(first, name, 2)),
                grid: facts.grid,
                block: facts.block,
                registers: facts.registers,
                static_shared_bytes: facts.static_bytes,
                dynamic_shared_bytes: facts.dynamic_bytes,
                local_bytes_per_thread: facts.local_bytes,
                graph_node: facts.graph_node.map(u64::cast_signed),
                ..Kernel::default()
            });
        });
        Ok(())
    }

    fn memcpys(&self, mut row: impl FnMut(Memcpy)) -> Result<(), Infallible> {
        self.each_work(|process, _, work, (start_ns, end_ns)| {
            let LoggedWorkKind::Copy { kind } = work.kind else { return };
            row(Memcpy {
                start_ns,
                end_ns,
                bytes: work.bytes,
                kind: CopyKind::from_number(i64::from(kind)),
                pageable: None,
                device: Some(work.device),
                stream: Some(work.stream),
                correlation: Some(i64::from(work.id)),
                global_pid: Some(process),
            });
        });
        Ok(())
    }

    fn memsets(&self, mut row: impl FnMut(Memset)) -> Result<(), Infallible> {
        self.each_work(|process, _, work, (start_ns, end_ns)| {
            let LoggedWorkKind::Set { value } = work.kind else { return };
            row(Memset {
                start_ns,
                end_ns,
                bytes: work.bytes,
                value: value.map(i64::from),
                device: Some(work.device),
                stream: Some(work.stream),
                correlation: Some(i64::from(work.id)),
                global_pid: Some(process),
            });
        });
        Ok(())
    }

    fn graph_launches(&self, _: impl FnMut(GraphLaunch)) -> Result<(), Infallible> {
        Ok(())
    }

    fn api_calls(&self, mut row: impl FnMut(ApiCall)) -> Result<(), Infallible> {
        for (process, first, session) in self.sessions() {
            for call in &session.calls {
                row(ApiCall {
                    start_ns: nanos(call.start_ns),
                    end_ns: nanos(call.end_ns),
                    global_tid: Some(thread(process, call.tid)),
                    correlation: Some(i64::from(call.id)),
                    name: call.name.map(|name| string(first, name, 0)),
                    return_value: Some(i64::from(call.result)),
                });
            }
        }
        Ok(())
    }

    fn nvtx_events(&self, mut row: impl FnMut(NvtxEvent)) -> Result<(), Infallible> {
        let event = |kind, process: i64, domain: u64, text: Option<&str>| NvtxEvent {
            kind,
            start_ns: 0,
            end_ns: None,
            text: text.map(str::to_owned),
            text_id: None,
            domain: i64::try_from(domain).ok(),
            global_tid: Some(process),
            end_global_tid: None,
            range_id: None,
            category: None,
            payload: None,
        };
        for (process, _, session) in self.sessions() {
            for (domain, name) in &session.domains {
                row(event(NvtxKind::Domain, process, *domain, Some(name)));
            }
        }
        for range in &self.paired.ranges {
            let kind = if range.start_end { NvtxKind::StartEnd } else { NvtxKind::PushPop };
            let process = process(range.session.cast_signed());
            row(NvtxEvent {
                start_ns: nanos(range.start_ns),
                end_ns: range.end_ns.map(nanos),
                global_tid: Some(thread(process, range.thread)),
                // nsys treats a range without a name and one with an empty name alike.
                ..event(kind, process, range.domain, range.name.filter(|name| !name.is_empty()))
            });
        }
        Ok(())
    }
}
