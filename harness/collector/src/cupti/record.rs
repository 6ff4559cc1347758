//! Reads CUPTI's activity records: only the first bytes of each, which all versions of CUPTI 12 and
//! 13 lay out alike, however long the rest has become.
//!
//! A record states its kind but not its length, and each CUPTI writes the newest layout that it
//! knows (kernels: version 9 and 208 bytes in CUDA 12.1 to 12.9, 10 in 13.0, 13 and 248 bytes in
//! 13.5). So only the fields in the table below are read, and CUPTI itself steps from record to
//! record. Source: `cupti_activity.h` of the versions named in `tests/nvidia/cupti.py`, which
//! compiles a program against each of them and compares every line of the table.

use std::ffi::c_char;

/// Whether the headers of this CUPTI version were compared: CUDA 12.0 to 12.9, and 13.
pub(super) fn is_known(version: u32) -> bool {
    matches!(version, 18..=28 | 130_000..=139_999)
}

/// Kinds of records that we enable.
pub(super) const MEMCPY: u32 = 1;
pub(super) const MEMSET: u32 = 2;
pub(super) const DRIVER: u32 = 4;
pub(super) const RUNTIME: u32 = 5;
/// Kernels without serialisation; kind 3 would serialise them.
pub(super) const CONCURRENT_KERNEL: u32 = 10;
/// Copies between GPUs (`CUPTI_ACTIVITY_KIND_MEMCPY2`).
pub(super) const MEMCPY2: u32 = 22;
/// Serialised kernels, which another subscriber may request.
pub(super) const KERNEL: u32 = 3;

/// Offsets of fields, in bytes. The comment names the CUPTI field that the line is compared with.
mod at {
    pub(super) const KIND: usize = 0; // CUpti_Activity.kind
    pub(super) const KERNEL_REGISTERS: usize = 6; // CUpti_ActivityKernel*.registersPerThread
    pub(super) const KERNEL_START: usize = 16; // CUpti_ActivityKernel*.start
    pub(super) const KERNEL_END: usize = 24; // CUpti_ActivityKernel*.end
    pub(super) const KERNEL_DEVICE: usize = 40; // CUpti_ActivityKernel*.deviceId
    pub(super) const KERNEL_CONTEXT: usize = 44; // CUpti_ActivityKernel*.contextId
    pub(super) const KERNEL_STREAM: usize = 48; // CUpti_ActivityKernel*.streamId
    pub(super) const KERNEL_GRID: usize = 52; // CUpti_ActivityKernel*.gridX
    pub(super) const KERNEL_BLOCK: usize = 64; // CUpti_ActivityKernel*.blockX
    pub(super) const KERNEL_STATIC: usize = 76; // CUpti_ActivityKernel*.staticSharedMemory
    pub(super) const KERNEL_DYNAMIC: usize = 80; // CUpti_ActivityKernel*.dynamicSharedMemory
    pub(super) const KERNEL_LOCAL: usize = 84; // CUpti_ActivityKernel*.localMemoryPerThread
    pub(super) const KERNEL_CORRELATION: usize = 92; // CUpti_ActivityKernel*.correlationId
    pub(super) const KERNEL_NAME: usize = 104; // CUpti_ActivityKernel*.name
    pub(super) const KERNEL_GRAPH_NODE: usize = 144; // CUpti_ActivityKernel*.graphNodeId
    pub(super) const COPY_KIND: usize = 4; // CUpti_ActivityMemcpy*.copyKind
    pub(super) const COPY_BYTES: usize = 8; // CUpti_ActivityMemcpy*.bytes
    pub(super) const COPY_START: usize = 16; // CUpti_ActivityMemcpy*.start
    pub(super) const COPY_END: usize = 24; // CUpti_ActivityMemcpy*.end
    pub(super) const COPY_DEVICE: usize = 32; // CUpti_ActivityMemcpy*.deviceId
    pub(super) const COPY_CONTEXT: usize = 36; // CUpti_ActivityMemcpy*.contextId
    pub(super) const COPY_STREAM: usize = 40; // CUpti_ActivityMemcpy*.streamId
    pub(super) const COPY_CORRELATION: usize = 44; // CUpti_ActivityMemcpy*.correlationId
    pub(super) const PEER_KIND: usize = 4; // CUpti_ActivityMemcpyPtoP*.copyKind
    pub(super) const PEER_BYTES: usize = 8; // CUpti_ActivityMemcpyPtoP*.bytes
    pub(super) const PEER_START: usize = 16; // CUpti_ActivityMemcpyPtoP*.start
    pub(super) const PEER_END: usize = 24; // CUpti_ActivityMemcpyPtoP*.end
    pub(super) const PEER_DEVICE: usize = 32; // CUpti_ActivityMemcpyPtoP*.deviceId
    pub(super) const PEER_CONTEXT: usize = 36; // CUpti_ActivityMemcpyPtoP*.contextId
    pub(super) const PEER_STREAM: usize = 40; // CUpti_ActivityMemcpyPtoP*.streamId
    pub(super) const PEER_CORRELATION: usize = 60; // CUpti_ActivityMemcpyPtoP*.correlationId
    pub(super) const SET_VALUE: usize = 4; // CUpti_ActivityMemset*.value
    pub(super) const SET_BYTES: usize = 8; // CUpti_ActivityMemset*.bytes
    pub(super) const SET_START: usize = 16; // CUpti_ActivityMemset*.start
    pub(super) const SET_END: usize = 24; // CUpti_ActivityMemset*.end
    pub(super) const SET_DEVICE: usize = 32; // CUpti_ActivityMemset*.deviceId
    pub(super) const SET_CONTEXT: usize = 36; // CUpti_ActivityMemset*.contextId
    pub(super) const SET_STREAM: usize = 40; // CUpti_ActivityMemset*.streamId
    pub(super) const SET_CORRELATION: usize = 44; // CUpti_ActivityMemset*.correlationId
    pub(super) const CALL_NUMBER: usize = 4; // CUpti_ActivityAPI.cbid
    pub(super) const CALL_START: usize = 8; // CUpti_ActivityAPI.start
    pub(super) const CALL_END: usize = 16; // CUpti_ActivityAPI.end
    pub(super) const CALL_THREAD: usize = 28; // CUpti_ActivityAPI.threadId
    pub(super) const CALL_CORRELATION: usize = 32; // CUpti_ActivityAPI.correlationId
    pub(super) const CALL_RESULT: usize = 36; // CUpti_ActivityAPI.returnValue
}

/// Time, device and stream of a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordTiming {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) device: u32,
    pub(super) context: u32,
    pub(super) stream: u32,
    pub(super) correlation: u32,
}

/// The contents of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record {
    Kernel {
        timing: RecordTiming,
        name: *const c_char,
        grid: [u32; 3],
        block: [u32; 3],
        registers: u32,
        static_bytes: u32,
        dynamic_bytes: u32,
        local_bytes: u32,
        graph_node: u64,
    },
    Copy {
        timing: RecordTiming,
        kind: u8,
        bytes: u64,
    },
    Set {
        timing: RecordTiming,
        value: u32,
        bytes: u64,
    },
    Call {
        driver: bool,
        number: u32,
        start: u64,
        end: u64,
        thread: u32,
        correlation: u32,
        result: u32,
    },
    /// A kind that was not enabled.
    Other,
}

/// Reads a record.
///
/// # Safety
/// `record` was written by a CUPTI of a version for which [`is_known`] holds.
pub(super) unsafe fn read(record: *const u8) -> Record {
    // SAFETY: the offsets lie inside the record of its kind, as compared with CUPTI's headers.
    unsafe {
        match u32_at(record, at::KIND) {
            CONCURRENT_KERNEL | KERNEL => Record::Kernel {
                timing: RecordTiming {
                    start: u64_at(record, at::KERNEL_START),
                    end: u64_at(record, at::KERNEL_END),
                    device: u32_at(record, at::KERNEL_DEVICE),
                    context: u32_at(record, at::KERNEL_CONTEXT),
                    stream: u32_at(record, at::KERNEL_STREAM),
                    correlation: u32_at(record, at::KERNEL_CORRELATION),
                },
                name: record.add(at::KERNEL_NAME).cast::<*const c_char>().read_unaligned(),
                grid: three_at(record, at::KERNEL_GRID),
                block: three_at(record, at::KERNEL_BLOCK),
                registers: record.add(at::KERNEL_REGISTERS).cast::<u16>().read_unaligned().into(),
                static_bytes: u32_at(record, at::KERNEL_STATIC),
                dynamic_bytes: u32_at(record, at::KERNEL_DYNAMIC),
                local_bytes: u32_at(record, at::KERNEL_LOCAL),
                graph_node: u64_at(record, at::KERNEL_GRAPH_NODE),
            },
            MEMCPY => Record::Copy {
                timing: RecordTiming {
                    start: u64_at(record, at::COPY_START),
                    end: u64_at(record, at::COPY_END),
                    device: u32_at(record, at::COPY_DEVICE),
                    context: u32_at(record, at::COPY_CONTEXT),
                    stream: u32_at(record, at::COPY_STREAM),
                    correlation: u32_at(record, at::COPY_CORRELATION),
                },
                kind: *record.add(at::COPY_KIND),
                bytes: u64_at(record, at::COPY_BYTES),
            },
            MEMCPY2 => Record::Copy {
                timing: RecordTiming {
                    start: u64_at(record, at::PEER_START),
                    end: u64_at(record, at::PEER_END),
                    device: u32_at(record, at::PEER_DEVICE),
                    context: u32_at(record, at::PEER_CONTEXT),
                    stream: u32_at(record, at::PEER_STREAM),
                    correlation: u32_at(record, at::PEER_CORRELATION),
                },
                kind: *record.add(at::PEER_KIND),
                bytes: u64_at(record, at::PEER_BYTES),
            },
            MEMSET => Record::Set {
                timing: RecordTiming {
                    start: u64_at(record, at::SET_START),
                    end: u64_at(record, at::SET_END),
                    device: u32_at(record, at::SET_DEVICE),
                    context: u32_at(record, at::SET_CONTEXT),
                    stream: u32_at(record, at::SET_STREAM),
                    correlation: u32_at(record, at::SET_CORRELATION),
                },
                value: u32_at(record, at::SET_VALUE),
                bytes: u64_at(record, at::SET_BYTES),
            },
            kind @ (DRIVER | RUNTIME) => Record::Call {
                driver: kind == DRIVER,
                number: u32_at(record, at::CALL_NUMBER),
                start: u64_at(record, at::CALL_START),
                end: u64_at(record, at::CALL_END),
                thread: u32_at(record, at::CALL_THREAD),
                correlation: u32_at(record, at::CALL_CORRELATION),
                result: u32_at(record, at::CALL_RESULT),
            },
            _ => Record::Other,
        }
    }
}

/// # Safety
/// Four bytes at `offset` belong to the record.
unsafe fn u32_at(record: *const u8, offset: usize) -> u32 {
    // SAFETY: the caller guarantees it.
    unsafe { record.add(offset).cast::<u32>().read_unaligned() }
}

/// # Safety
/// Eight bytes at `offset` belong to the record.
unsafe fn u64_at(record: *const u8, offset: usize) -> u64 {
    // SAFETY: the caller guarantees it.
    unsafe { record.add(offset).cast::<u64>().read_unaligned() }
}

/// # Safety
/// Twelve bytes at `offset` belong to the record.
unsafe fn three_at(record: *const u8, offset: usize) -> [u32; 3] {
    // SAFETY: the caller guarantees it.
    unsafe { [0, 4, 8].map(|part| u32_at(record, offset + part)) }
}
