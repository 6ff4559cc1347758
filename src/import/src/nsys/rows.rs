//! Rows of a trace from any tool, with the readers of nsys's two file formats.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use rgpu_format::nsys_rep::{EventIndex, EventTable, NsysEvent, NsysRepError, NsysReport};
use rgpu_format::nsys_row::{
    ApiCall, Diagnostic, GraphLaunch, Kernel, KernelInterval, Memcpy, Memset, NativeStack,
    NvtxEvent, PythonStack, Strings,
};
use rgpu_format::nsys_sqlite::{NsysSqlite, NsysSqliteError};

use super::ranks::CollectiveFacts;
use crate::ReadProgress;
use rgpu_model::profile::Gap;

/// Streams the rows of a trace. Every stream can be read more than once.
pub(crate) trait TraceRows {
    /// The error of reading.
    type Error;
    /// The bytes of the unpacked file, if its rows are still to be counted against its
    /// [memory](rgpu_format::memory). Other readers have counted theirs.
    fn file_bytes(&self) -> Option<usize> {
        None
    }
    /// Counts memory that was made of the rows so far. Rows that do not fit are left out.
    fn take_memory(&self, _bytes: usize) {}
    fn strings(&self) -> Result<Strings, Self::Error>;
    fn kernels(&self, row: impl FnMut(Kernel)) -> Result<(), Self::Error>;
    /// The first `most` kernels.
    fn first_kernels(&self, most: u64, mut row: impl FnMut(Kernel)) -> Result<(), Self::Error> {
        let mut seen = 0;
        self.kernels(|kernel| {
            if seen < most {
                row(kernel);
            }
            seen += 1;
        })
    }
    /// The times and names of the kernels, without their other columns.
    fn kernel_intervals(&self, mut row: impl FnMut(KernelInterval)) -> Result<(), Self::Error> {
        self.kernels(|kernel| row(kernel.into()))
    }
    fn memcpys(&self, row: impl FnMut(Memcpy)) -> Result<(), Self::Error>;
    fn memsets(&self, row: impl FnMut(Memset)) -> Result<(), Self::Error>;
    fn graph_launches(&self, row: impl FnMut(GraphLaunch)) -> Result<(), Self::Error>;
    fn api_calls(&self, row: impl FnMut(ApiCall)) -> Result<(), Self::Error>;
    fn nvtx_events(&self, row: impl FnMut(NvtxEvent)) -> Result<(), Self::Error>;
    /// The native frames of calls; to be read after the calls.
    fn native_stacks(&self, _row: impl FnMut(NativeStack)) -> Result<(), Self::Error> {
        Ok(())
    }
    /// The frames of Python of calls; to be read after the NVTX events.
    fn python_stacks(&self, _row: impl FnMut(PythonStack)) -> Result<(), Self::Error> {
        Ok(())
    }
    /// The collectives that the tool tells of, by the correlation id of their kernels. Only for
    /// tools that record one process.
    fn collectives(&self) -> HashMap<i64, CollectiveFacts> {
        HashMap::new()
    }
    /// Rows that are not read, with what they are: only for a trace without GPU work.
    fn other_rows(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
    /// Messages of the tool about its own work. Most tools have none.
    fn diagnostics(&self) -> Result<Vec<Diagnostic>, Self::Error> {
        Ok(Vec::new())
    }
}

/// The rows of an export. Counts them for progress, except in a second pass over the kernels.
pub(super) struct ExportRows<'a> {
    file: &'a NsysSqlite,
    watch: Option<&'a dyn ReadProgress>,
    read: Cell<u64>,
    /// The approximate number of rows.
    all: u64,
}

/// Rows between two progress reports. Reading that many takes a few milliseconds.
const ROWS_PER_PROGRESS_REPORT: u64 = 1 << 14;

impl<'a> ExportRows<'a> {
    pub(super) fn new(file: &'a NsysSqlite, watch: Option<&'a dyn ReadProgress>) -> ExportRows<'a> {
        let all = if watch.is_some() { file.about_rows() } else { 0 };
        ExportRows { file, watch, read: Cell::new(0), all }
    }

    /// Wraps `row` to count the rows.
    fn counted<T>(&self, mut row: impl FnMut(T)) -> impl FnMut(T) {
        move |value| {
            let read = self.read.get() + 1;
            self.read.set(read);
            if read.is_multiple_of(ROWS_PER_PROGRESS_REPORT)
                && let Some(watch) = self.watch
            {
                watch.read(read.min(self.all), self.all);
            }
            row(value);
        }
    }
}

/// Tables that are not read, and what their rows are.
const OTHER_TABLES: &[(&str, &str)] = &[
    ("COMPOSITE_EVENTS", "CPU samples"),
    ("OSRT_API", "calls of the operating system"),
    ("SCHED_EVENTS", "switches of threads"),
    ("CUBLAS_EVENTS", "calls of cuBLAS"),
    ("CUDNN_EVENTS", "calls of cuDNN"),
    ("MPI_P2P_EVENTS", "messages of MPI"),
    ("MPI_COLLECTIVES_EVENTS", "collectives of MPI"),
    ("GPU_METRICS", "samples of GPU metrics"),
];

impl TraceRows for ExportRows<'_> {
    type Error = NsysSqliteError;

    fn file_bytes(&self) -> Option<usize> {
        Some(self.file.file_bytes())
    }

    fn strings(&self) -> Result<Strings, NsysSqliteError> {
        self.file.strings()
    }

    fn kernels(&self, row: impl FnMut(Kernel)) -> Result<(), NsysSqliteError> {
        self.file.kernels(row).map(drop)
    }

    fn first_kernels(&self, most: u64, row: impl FnMut(Kernel)) -> Result<(), NsysSqliteError> {
        self.file.first_kernels(most, row).map(drop)
    }

    fn kernel_intervals(&self, row: impl FnMut(KernelInterval)) -> Result<(), NsysSqliteError> {
        self.file.kernel_intervals(self.counted(row)).map(drop)
    }

    fn memcpys(&self, row: impl FnMut(Memcpy)) -> Result<(), NsysSqliteError> {
        self.file.memcpys(self.counted(row)).map(drop)
    }

    fn memsets(&self, row: impl FnMut(Memset)) -> Result<(), NsysSqliteError> {
        self.file.memsets(self.counted(row)).map(drop)
    }

    fn graph_launches(&self, row: impl FnMut(GraphLaunch)) -> Result<(), NsysSqliteError> {
        self.file.graph_launches(self.counted(row)).map(drop)
    }

    fn api_calls(&self, row: impl FnMut(ApiCall)) -> Result<(), NsysSqliteError> {
        self.file.api_calls(self.counted(row)).map(drop)
    }

    fn nvtx_events(&self, row: impl FnMut(NvtxEvent)) -> Result<(), NsysSqliteError> {
        self.file.nvtx_events(self.counted(row)).map(drop)
    }

    fn native_stacks(&self, row: impl FnMut(NativeStack)) -> Result<(), NsysSqliteError> {
        self.file.native_stacks(row).map(drop)
    }

    fn other_rows(&self) -> Vec<(&'static str, u64)> {
        let rows = OTHER_TABLES.iter().map(|(table, what)| (*what, self.file.rows_of(table)));
        rows.filter_map(|(what, rows)| Some((what, rows?))).collect()
    }

    fn diagnostics(&self) -> Result<Vec<Diagnostic>, NsysSqliteError> {
        self.file.diagnostics()
    }
}

/// Code of the gap for report content that this reader does not understand.
pub(super) const UNKNOWN: &str = "unknown_events";

/// The rows of a report, and what one pass over all events found.
pub(super) struct ReportRows<'r, 'a> {
    report: &'r NsysReport<'a>,
    index: EventIndex,
    diagnostics: Vec<Diagnostic>,
    /// Number of events of GPU work that takes time and is neither kernel, copy, fill nor graph
    /// launch.
    other_work: u64,
    /// Whether the calls that were read have native frames, and the NVTX events those of Python:
    /// most reports have none, and are not read again for them.
    has_native: AtomicBool,
    has_python: AtomicBool,
}

/// Whether GPU work of an unparsed kind takes GPU time. Synchronisations and records of CUDA events
/// do not.
fn takes_time(kind: u64) -> bool {
    const SYNCHRONISATION: u64 = 5;
    const CUDA_EVENT: u64 = 6;
    !matches!(kind, SYNCHRONISATION | CUDA_EVENT)
}

impl<'r, 'a> ReportRows<'r, 'a> {
    pub(super) fn new(report: &'r NsysReport<'a>) -> Result<Self, NsysRepError> {
        let index = report.index()?;
        let (mut diagnostics, mut other_work) = (Vec::new(), 0);
        let pick = |event| if let NsysEvent::Diagnostic(text) = event { Some(text) } else { None };
        report.events_of(&index, EventTable::Diagnostic, pick, |text| diagnostics.push(text))?;
        let pick =
            |event| if let NsysEvent::OtherGpuWork(kind) = event { Some(kind) } else { None };
        report.events_of(&index, EventTable::OtherGpuWork, pick, |kind| {
            other_work += u64::from(takes_time(kind));
        })?;
        let (has_native, has_python) = (AtomicBool::default(), AtomicBool::default());
        Ok(ReportRows { report, index, diagnostics, other_work, has_native, has_python })
    }

    /// Gaps for what this reader of an unpublished format does not understand.
    pub(super) fn gaps(&self, from: &str) -> Vec<Gap> {
        let read = self.index.events();
        let stated = self.report.stated_events().unwrap_or(read);
        let texts = [
            (self.other_work > 0).then(|| {
                format!(
                    "{from}: {} pieces of GPU work are of kinds that rgpu does not parse; `nsys \
                     export --type sqlite` shows them",
                    self.other_work
                )
            }),
            (stated != read)
                .then(|| format!("{from}: the report should have {stated} events and has {read}")),
        ];
        let texts = texts.into_iter().flatten();
        texts.map(|text| Gap { code: UNKNOWN.to_owned(), text }).collect()
    }
}

impl TraceRows for ReportRows<'_, '_> {
    type Error = NsysRepError;

    fn file_bytes(&self) -> Option<usize> {
        Some(self.report.unpacked_bytes())
    }

    fn strings(&self) -> Result<Strings, NsysRepError> {
        Ok(self.report.strings().clone())
    }

    fn kernels(&self, row: impl FnMut(Kernel)) -> Result<(), NsysRepError> {
        let pick = |event| if let NsysEvent::Kernel(kernel) = event { Some(kernel) } else { None };
        self.report.events_of(&self.index, EventTable::Kernel, pick, row)
    }

    fn kernel_intervals(&self, row: impl FnMut(KernelInterval)) -> Result<(), NsysRepError> {
        let pick = |event| match event {
            NsysEvent::Kernel(kernel) => Some(KernelInterval::from(kernel)),
            _ => None,
        };
        self.report.events_of(&self.index, EventTable::Kernel, pick, row)
    }

    fn first_kernels(&self, most: u64, mut row: impl FnMut(Kernel)) -> Result<(), NsysRepError> {
        self.report.first_events_of(&self.index, EventTable::Kernel, most, |event| {
            if let NsysEvent::Kernel(kernel) = event {
                row(kernel);
            }
        })
    }

    fn memcpys(&self, row: impl FnMut(Memcpy)) -> Result<(), NsysRepError> {
        let pick = |event| if let NsysEvent::Memcpy(copy) = event { Some(copy) } else { None };
        self.report.events_of(&self.index, EventTable::Memcpy, pick, row)
    }

    fn memsets(&self, row: impl FnMut(Memset)) -> Result<(), NsysRepError> {
        let pick = |event| if let NsysEvent::Memset(fill) = event { Some(fill) } else { None };
        self.report.events_of(&self.index, EventTable::Memset, pick, row)
    }

    fn graph_launches(&self, row: impl FnMut(GraphLaunch)) -> Result<(), NsysRepError> {
        let pick = |event| if let NsysEvent::Graph(graph) = event { Some(graph) } else { None };
        self.report.events_of(&self.index, EventTable::Graph, pick, row)
    }

    fn api_calls(&self, row: impl FnMut(ApiCall)) -> Result<(), NsysRepError> {
        let pick = |event| match event {
            NsysEvent::ApiCall(call) => Some(call),
            NsysEvent::NativeStack(_) => {
                self.has_native.store(true, Ordering::Relaxed);
                None
            }
            _ => None,
        };
        self.report.events_of(&self.index, EventTable::ApiCall, pick, row)
    }

    fn nvtx_events(&self, row: impl FnMut(NvtxEvent)) -> Result<(), NsysRepError> {
        let pick = |event| match event {
            NsysEvent::Nvtx(event) => Some(event),
            NsysEvent::PythonStack(_) => {
                self.has_python.store(true, Ordering::Relaxed);
                None
            }
            _ => None,
        };
        self.report.events_of(&self.index, EventTable::Nvtx, pick, row)
    }

    fn native_stacks(&self, row: impl FnMut(NativeStack)) -> Result<(), NsysRepError> {
        if !self.has_native.load(Ordering::Relaxed) {
            return Ok(());
        }
        let pick =
            |event| if let NsysEvent::NativeStack(stack) = event { Some(stack) } else { None };
        self.report.events_of(&self.index, EventTable::ApiCall, pick, row)
    }

    fn python_stacks(&self, row: impl FnMut(PythonStack)) -> Result<(), NsysRepError> {
        if !self.has_python.load(Ordering::Relaxed) {
            return Ok(());
        }
        let pick =
            |event| if let NsysEvent::PythonStack(stack) = event { Some(stack) } else { None };
        self.report.events_of(&self.index, EventTable::Nvtx, pick, row)
    }

    fn diagnostics(&self) -> Result<Vec<Diagnostic>, NsysRepError> {
        Ok(self.diagnostics.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synchronisations_and_event_records_take_no_gpu_time() {
        assert_eq!([4, 5, 6, 7].map(takes_time), [true, false, false, true]);
    }
}
