//! The tables of the export, and how their columns are converted to rows.

use super::table::Fields;
use crate::nsys_row::{
    ApiCall, CopyKind, Diagnostic, Gpu, GraphLaunch, Kernel, KernelInterval, KernelShape, Memcpy,
    Memset, NativeFrame, NvtxEvent, NvtxKind,
};

/// A row type: its table, its columns and its conversion.
pub(super) trait TableRow: Send + Sized {
    const TABLE: &'static str;
    const COLUMNS: &'static [&'static str];
    /// Columns that no other table of nsys has together, so that the table is known under another
    /// name, too. Empty if there are none.
    const OWN_COLUMNS: &'static [&'static str] = &[];

    /// Builds the row from the columns, in their order.
    fn read(f: &Fields<'_, '_>) -> Self;

    /// Heap bytes of the row's texts.
    fn texts(&self) -> usize {
        0
    }
}

impl TableRow for Kernel {
    const TABLE: &'static str = "CUPTI_ACTIVITY_KIND_KERNEL";
    const COLUMNS: &'static [&'static str] = &[
        "start",
        "end",
        "deviceId",
        "contextId",
        "streamId",
        "correlationId",
        "globalPid",
        "demangledName",
        "shortName",
        "mangledName",
        "gridX",
        "gridY",
        "gridZ",
        "blockX",
        "blockY",
        "blockZ",
        "clusterX",
        "clusterY",
        "clusterZ",
        "registersPerThread",
        "staticSharedMemory",
        "dynamicSharedMemory",
        "localMemoryPerThread",
        "graphNodeId",
    ];
    const OWN_COLUMNS: &'static [&'static str] =
        &["start", "end", "gridX", "blockX", "registersPerThread"];

    fn read(f: &Fields<'_, '_>) -> Kernel {
        Kernel {
            start_ns: f.time(0),
            end_ns: f.time(1),
            device: f.small(2),
            context: f.small(3),
            stream: f.small(4),
            correlation: f.int(5),
            global_pid: f.int(6),
            demangled: f.int(7),
            short: f.int(8),
            mangled: f.int(9),
            grid: f.triple(10),
            block: f.triple(13),
            cluster: f.triple(16),
            registers: f.small(19),
            static_shared_bytes: f.unsigned(20),
            dynamic_shared_bytes: f.unsigned(21),
            local_bytes_per_thread: f.unsigned(22),
            graph_node: f.int(23),
        }
    }
}

impl TableRow for KernelInterval {
    const TABLE: &'static str = Kernel::TABLE;
    const COLUMNS: &'static [&'static str] = &[
        "start",
        "end",
        "deviceId",
        "streamId",
        "correlationId",
        "globalPid",
        "demangledName",
        "shortName",
        "contextId",
        "graphNodeId",
        "gridX",
        "gridY",
        "gridZ",
        "blockX",
        "blockY",
        "blockZ",
        "dynamicSharedMemory",
    ];
    const OWN_COLUMNS: &'static [&'static str] =
        &["start", "end", "gridX", "blockX", "registersPerThread"];

    fn read(f: &Fields<'_, '_>) -> KernelInterval {
        KernelInterval {
            start_ns: f.time(0),
            end_ns: f.time(1),
            device: f.small(2),
            stream: f.small(3),
            correlation: f.int(4),
            global_pid: f.int(5),
            demangled: f.int(6),
            short: f.int(7),
            context: f.small(8),
            graph_node: f.int(9),
            shape: KernelShape::new(f.triple(10), f.triple(13), f.unsigned(16)),
        }
    }
}

impl TableRow for Memcpy {
    const TABLE: &'static str = "CUPTI_ACTIVITY_KIND_MEMCPY";
    const COLUMNS: &'static [&'static str] = &[
        "start",
        "end",
        "bytes",
        "copyKind",
        "deviceId",
        "streamId",
        "correlationId",
        "globalPid",
        "srcKind",
        "dstKind",
    ];
    const OWN_COLUMNS: &'static [&'static str] = &["start", "end", "bytes", "copyKind"];

    fn read(f: &Fields<'_, '_>) -> Memcpy {
        let kind = CopyKind::from_number(f.int(3).unwrap_or(0));
        Memcpy {
            start_ns: f.time(0),
            end_ns: f.time(1),
            bytes: f.unsigned(2).unwrap_or(0),
            kind,
            pageable: kind.is_pageable(f.int(8), f.int(9)),
            device: f.small(4),
            stream: f.small(5),
            correlation: f.int(6),
            global_pid: f.int(7),
        }
    }
}

impl TableRow for Memset {
    const TABLE: &'static str = "CUPTI_ACTIVITY_KIND_MEMSET";
    const COLUMNS: &'static [&'static str] =
        &["start", "end", "bytes", "value", "deviceId", "streamId", "correlationId", "globalPid"];
    const OWN_COLUMNS: &'static [&'static str] = &["start", "end", "bytes", "value", "memKind"];

    fn read(f: &Fields<'_, '_>) -> Memset {
        Memset {
            start_ns: f.time(0),
            end_ns: f.time(1),
            bytes: f.unsigned(2).unwrap_or(0),
            value: f.int(3),
            device: f.small(4),
            stream: f.small(5),
            correlation: f.int(6),
            global_pid: f.int(7),
        }
    }
}

/// A row of calls: a call, or the time in which the native frames of one were taken.
pub(super) struct RuntimeRow {
    pub(super) call: ApiCall,
    class: Option<i64>,
    /// The number of the frames in the table of frames.
    pub(super) chain: Option<i64>,
}

impl RuntimeRow {
    /// The class of rows that are no call, but have the frames of one.
    const BACKTRACE: i64 = 67;

    pub(super) fn is_call(&self) -> bool {
        self.class != Some(Self::BACKTRACE)
    }
}

impl TableRow for RuntimeRow {
    const TABLE: &'static str = "CUPTI_ACTIVITY_KIND_RUNTIME";
    const COLUMNS: &'static [&'static str] = &[
        "start",
        "end",
        "globalTid",
        "correlationId",
        "nameId",
        "returnValue",
        "eventClass",
        "callchainId",
    ];

    fn read(f: &Fields<'_, '_>) -> RuntimeRow {
        RuntimeRow {
            call: ApiCall {
                start_ns: f.time(0),
                end_ns: f.time(1),
                global_tid: f.int(2),
                correlation: f.int(3),
                name: f.int(4),
                return_value: f.int(5),
            },
            class: f.int(6),
            chain: f.int(7),
        }
    }
}

/// A frame of a call: the number of its stack, its place in there from the innermost out, and the
/// frame.
pub(super) struct ChainRow {
    pub(super) chain: Option<i64>,
    pub(super) depth: i64,
    pub(super) frame: NativeFrame,
}

impl TableRow for ChainRow {
    const TABLE: &'static str = "CUDA_CALLCHAINS";
    const COLUMNS: &'static [&'static str] =
        &["id", "stackDepth", "symbol", "module", "unresolved"];

    fn read(f: &Fields<'_, '_>) -> ChainRow {
        ChainRow {
            chain: f.int(0),
            depth: f.int(1).unwrap_or(0),
            frame: NativeFrame {
                symbol: f.int(2).unwrap_or(-1),
                module: f.int(3).unwrap_or(-1),
                is_resolved: f.int(4).unwrap_or(0) == 0,
            },
        }
    }
}

impl TableRow for GraphLaunch {
    const TABLE: &'static str = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
    const COLUMNS: &'static [&'static str] =
        &["start", "end", "streamId", "correlationId", "globalPid", "graphId"];
    const OWN_COLUMNS: &'static [&'static str] = &["start", "end", "graphId", "graphExecId"];

    fn read(f: &Fields<'_, '_>) -> GraphLaunch {
        GraphLaunch {
            start_ns: f.time(0),
            end_ns: f.time(1),
            stream: f.small(2),
            correlation: f.int(3),
            global_pid: f.int(4),
            graph: f.int(5),
        }
    }
}

impl TableRow for NvtxEvent {
    const TABLE: &'static str = "NVTX_EVENTS";
    const COLUMNS: &'static [&'static str] = &[
        "eventType",
        "start",
        "end",
        "text",
        "textId",
        "domainId",
        "globalTid",
        "endGlobalTid",
        "rangeId",
        "category",
        "jsonText",
    ];
    const OWN_COLUMNS: &'static [&'static str] =
        &["start", "end", "eventType", "domainId", "rangeId"];

    fn read(f: &Fields<'_, '_>) -> NvtxEvent {
        NvtxEvent {
            kind: NvtxKind::from_number(f.int(0).unwrap_or(0)),
            start_ns: f.time(1),
            end_ns: f.int(2),
            text: f.text(3).map(cut),
            text_id: f.int(4),
            domain: f.int(5),
            global_tid: f.int(6),
            end_global_tid: f.int(7),
            range_id: f.int(8),
            category: f.int(9),
            payload: f.text(10).map(cut),
        }
    }

    fn texts(&self) -> usize {
        let texts = [&self.text, &self.payload];
        texts.into_iter().flatten().map(String::len).sum()
    }
}

/// Maximum bytes of a name: many rows of a hostile file may share the pages of one long text.
const MAX_NAME_BYTES: usize = 1 << 16;

fn cut(mut text: String) -> String {
    if text.len() > MAX_NAME_BYTES {
        let at = (0..=MAX_NAME_BYTES).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(at.unwrap_or(0));
        text.shrink_to_fit();
    }
    text
}

impl TableRow for Gpu {
    const TABLE: &'static str = "TARGET_INFO_GPU";
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "name",
        "uuid",
        "chipName",
        "computeMajor",
        "computeMinor",
        "smCount",
        "clockRate",
        "memoryBandwidth",
        "totalMemory",
        "l2CacheSize",
    ];

    fn read(f: &Fields<'_, '_>) -> Gpu {
        Gpu {
            id: f.small(0),
            name: f.text(1),
            uuid: f.text(2),
            chip: f.text(3),
            compute: f.small(4).zip(f.small(5)),
            sms: f.small(6),
            clock_hz: f.unsigned(7),
            memory_bytes_per_s: f.unsigned(8),
            memory_bytes: f.unsigned(9),
            l2_bytes: f.unsigned(10),
        }
    }
}

impl TableRow for Diagnostic {
    const TABLE: &'static str = "DIAGNOSTIC_EVENT";
    const COLUMNS: &'static [&'static str] = &["timestamp", "severity", "text"];

    fn read(f: &Fields<'_, '_>) -> Diagnostic {
        Diagnostic { at_ns: f.int(0), severity: f.int(1), text: f.text(2).unwrap_or_default() }
    }
}
