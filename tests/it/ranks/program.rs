//! A program of several ranks, written as nsys writes its export. Each step computes, does
//! something else if a fault is given, and reduces over all ranks: no rank leaves before the last
//! has come.

use std::path::Path;

use rusqlite::Connection;

/// One nanosecond in a millisecond.
pub(super) const MS: i64 = 1_000_000;
/// How long the all-reduce takes once all ranks are there.
pub(super) const REDUCE_NS: i64 = 270_000;
/// Bytes that are reduced.
pub(super) const BYTES: i64 = 64 << 20;
const KERNEL: &str = "void gemm<float>(float *, const float *)";
const REDUCE: &str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)";

/// What one rank does in addition in one step.
#[derive(Clone, Copy)]
pub(super) enum Fault {
    /// Its host sleeps in the range `load_batch`.
    Sleep { rank: usize, step: usize, ns: i64 },
    /// A kernel in the range `forward` takes longer in every step.
    SlowKernel { rank: usize, ns: i64 },
}

/// How the ranks run.
#[derive(Clone)]
pub(super) struct Program {
    pub(super) ranks: usize,
    pub(super) steps: usize,
    pub(super) fault: Option<Fault>,
    /// How far the clock of each rank is ahead, in nanoseconds.
    pub(super) ahead_ns: Vec<i64>,
    /// Name of the host of each rank.
    pub(super) hosts: Vec<&'static str>,
}

impl Program {
    pub(super) fn new(ranks: usize) -> Program {
        Program {
            ranks,
            steps: 10,
            fault: None,
            ahead_ns: vec![0; ranks],
            hosts: vec!["node0"; ranks],
        }
    }

    /// Writes one report for each rank: `rank0.sqlite` …
    pub(super) fn write_each(&self, folder: &Path) {
        let work = self.work();
        for (rank, events) in work.iter().enumerate() {
            let path = folder.join(format!("rank{rank}.sqlite"));
            let file = Export::create(&path, self.hosts[rank], START_NS + self.ahead_ns[rank]);
            file.add(events, 1000 + rank as i64, 0);
        }
    }

    /// Writes one report of all ranks, as nsys around the launcher makes it.
    pub(super) fn write_one(&self, path: &Path) {
        let file = Export::create(path, self.hosts[0], START_NS);
        for (rank, events) in self.work().iter().enumerate() {
            file.add(events, 1000 + rank as i64, rank as i64);
        }
    }

    fn work(&self) -> Vec<Vec<Event>> {
        let mut all = vec![Vec::new(); self.ranks];
        let mut now = vec![MS; self.ranks];
        for step in 0..self.steps {
            let mut arrival = vec![0; self.ranks];
            for (rank, events) in all.iter_mut().enumerate() {
                let begin = now[rank];
                let mut at = begin + 10_000;
                if let Some(Fault::Sleep { rank: slow, step: in_step, ns }) = self.fault
                    && (slow, in_step) == (rank, step)
                {
                    events.push(Event::Range("load_batch", at, at + ns));
                    at += ns + 1_000;
                }
                let mut length = 2 * MS;
                if let Some(Fault::SlowKernel { rank: slow, ns }) = self.fault
                    && slow == rank
                {
                    length += ns;
                }
                events.push(Event::Range("forward", at, at + 50_000));
                events.push(Event::Kernel(at + 1_000, at + 20_000, length));
                let end = at + 20_000 + length;
                arrival[rank] = end + 5_000;
                events.push(Event::Reduce(at + 60_000, end + 5_000));
                now[rank] = end + 30_000;
                events.push(Event::Step(begin, now[rank]));
            }
            let all_there = arrival.iter().max().unwrap();
            for (rank, events) in all.iter_mut().enumerate() {
                let leave = all_there + REDUCE_NS + rank as i64 * 500;
                events.push(Event::ReduceEnd(leave));
                now[rank] = now[rank].max(leave + 20_000);
            }
        }
        all
    }
}

const START_NS: i64 = 1_790_000_000_000_000_000;

#[derive(Clone, Copy)]
enum Event {
    Step(i64, i64),
    Range(&'static str, i64, i64),
    /// Start of the call, start of the kernel and its length, in nanoseconds.
    Kernel(i64, i64, i64),
    /// Call and start of an all-reduce.
    Reduce(i64, i64),
    ReduceEnd(i64),
}

struct Export(Connection);

impl Export {
    fn create(path: &Path, host: &str, start_ns: i64) -> Export {
        let file = Connection::open(path).unwrap();
        file.execute_batch(
            "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
             CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
             CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
             CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
             CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT, name TEXT, nameEnum INTEGER, value TEXT);
             CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
                streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER);
             CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER,
                correlationId INTEGER, nameId INTEGER, returnValue INTEGER);
             CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER,
                domainId INTEGER, textId INTEGER, jsonText TEXT);
             INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.20.3');
             INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H200');",
        )
        .unwrap();
        let names = [(1, KERNEL), (2, REDUCE), (3, "cudaLaunchKernel_v7000")];
        for (id, name) in names {
            file.execute("INSERT INTO StringIds VALUES (?1, ?2)", (id, name)).unwrap();
        }
        file.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?1, '', '')", [start_ns])
            .unwrap();
        file.execute(
            "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, 'Local', 'Hostname', 1, ?1)",
            [host],
        )
        .unwrap();
        Export(file)
    }

    fn add(&self, events: &[Event], pid: i64, device: i64) {
        let file = &self.0;
        file.execute_batch("BEGIN").unwrap();
        let (process, thread) = (pid << 24, (pid << 24) | pid);
        let tables = ["CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"];
        file.execute(
            "INSERT INTO NVTX_EVENTS VALUES (0, NULL, 75, 'NCCL', ?1, 1, NULL, NULL)",
            [thread],
        )
        .unwrap();
        let range = |text: &str, start: i64, end: i64, domain: i64, json: Option<String>| {
            file.execute(
                "INSERT INTO NVTX_EVENTS VALUES (?1, ?2, 59, ?3, ?4, ?5, NULL, ?6)",
                (start, end, text, thread, domain, json),
            )
            .unwrap();
        };
        let launch = |name: i64, id: i64, called: i64, start: i64, end: i64| {
            let kernel =
                format!("INSERT INTO {} VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6, ?7, ?7)", tables[0]);
            file.execute(&kernel, (start, end, device, 6 + name, id, process, name)).unwrap();
            let call = format!("INSERT INTO {} VALUES (?1, ?2, 1, ?3, ?4, 3, 0)", tables[1]);
            file.execute(&call, (called, called + 4_000, thread, id)).unwrap();
        };
        let mut reduce = None;
        for (event, id) in events.iter().zip(1..) {
            match *event {
                Event::Step(start, end) => range("step", start, end, 0, None),
                Event::Range(name, start, end) => range(name, start, end, 0, None),
                Event::Kernel(called, start, length) => {
                    launch(1, id, called, start, start + length);
                }
                Event::Reduce(called, start) => reduce = Some((id, called, start)),
                Event::ReduceEnd(end) => {
                    let (id, called, start) = reduce.take().unwrap();
                    let json = format!(
                        r#"{{"NCCL communicator ID":77,"Message size [bytes]":{BYTES},"Reduction operation":"Sum"}}"#
                    );
                    range("ncclAllReduce", called - 1_000, called + 6_000, 1, Some(json));
                    launch(2, id, called, start, end);
                }
            }
        }
        file.execute_batch("COMMIT").unwrap();
    }
}
