//! One result: a kernel launch, a range, a command list or a graph, as a view into the file.
//!
//! The four messages have the same fields under different numbers:
//!
//! | | kernel | range | command list | graph |
//! |---|---|---|---|---|
//! | metrics | 13 | 4 | 4 | 4 |
//! | sections | 17 | 7 | 7 | 7 |
//! | rules | 19 | 20 | 21 | 22 |
//! | NVTX state | 21 | 10 | – | – |
//! | references to sources | 15 (a message, 1) | 15 | 17 | 17 |
//!
//! A kernel also has: 1 thread, 2 API call, 5 mangled, 6 function and 7 demangled name, 10 grid,
//! 11 block, 14 time of creation, 22 context, 23 stream, 31 name after renaming.

use std::borrow::Cow;

use super::block::EntryKind;
use super::metric::{Metric, MetricPosition};
use super::notes::Notes;
use super::nvtx::NvtxState;
use super::rule::Rule;
use super::section::Section;
use super::strings::Strings;
use super::wire::{Field, Message};

/// What one result of a report measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultKind {
    /// One launch of a kernel.
    Kernel,
    /// A range of launches (`--replay-mode range` or `app-range`).
    Range,
    /// A command list.
    CommandList,
    /// A whole CUDA graph (`--graph-profiling graph`).
    Graph,
}

/// The field numbers that differ between the kinds of result.
#[derive(Debug, Clone, Copy)]
struct Layout {
    what: &'static str,
    metrics: u32,
    sections: u32,
    rules: u32,
    nvtx: Option<u32>,
    references: u32,
    /// Field numbers up to this one are in the published layout, whether they are read here or not.
    published: u32,
}

impl ResultKind {
    pub(super) fn from_entry(kind: EntryKind) -> Option<Self> {
        match kind {
            EntryKind::Source => None,
            EntryKind::Kernel => Some(ResultKind::Kernel),
            EntryKind::Range => Some(ResultKind::Range),
            EntryKind::CommandList => Some(ResultKind::CommandList),
            EntryKind::Graph => Some(ResultKind::Graph),
        }
    }

    fn layout(self) -> Layout {
        let range = Layout {
            what: "range result",
            metrics: 4,
            sections: 7,
            rules: 20,
            nvtx: Some(10),
            references: 15,
            published: 24,
        };
        match self {
            ResultKind::Kernel => Layout {
                what: "kernel result",
                metrics: 13,
                sections: 17,
                rules: 19,
                nvtx: Some(21),
                references: 15,
                published: 35,
            },
            ResultKind::Range => range,
            ResultKind::CommandList => Layout {
                what: "command list result",
                rules: 21,
                nvtx: None,
                references: 17,
                ..range
            },
            ResultKind::Graph => {
                Layout { what: "graph result", rules: 22, nvtx: None, references: 17, ..range }
            }
        }
    }
}

/// Three dimensions: blocks of a grid or threads of a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dim3 {
    /// Along x.
    pub x: u64,
    /// Along y.
    pub y: u64,
    /// Along z.
    pub z: u64,
}

impl Dim3 {
    fn read(message: Message<'_>, notes: &mut Notes) -> Self {
        let mut dim = Dim3::default();
        notes.walk(message, "size", |_, field| match field.number {
            1 => field.varint().map(|x| dim.x = x),
            2 => field.varint().map(|y| dim.y = y),
            3 => field.varint().map(|z| dim.z = z),
            _ => None,
        });
        dim
    }
}

/// The facts that only a kernel launch has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NcuLaunch<'a> {
    /// The mangled name, which is the symbol in the cubin.
    pub mangled_name: Cow<'a, str>,
    /// The name without arguments and template parameters, which `-k NAME` matches.
    pub function_name: Cow<'a, str>,
    /// The full demangled name.
    pub demangled_name: Cow<'a, str>,
    /// The name after renaming by NVTX or by a list; empty if it was not renamed.
    pub renamed: Cow<'a, str>,
    /// Blocks of the grid.
    pub grid: Dim3,
    /// Threads of a block.
    pub block: Dim3,
    /// Id of the host thread that launched it.
    pub thread: u64,
    /// Number of the API call that launched it.
    pub api_call: u64,
    /// Number of the CUDA context in its process.
    pub context: u64,
    /// Number of the CUDA stream in its context.
    pub stream: u64,
}

/// One result of a report.
#[derive(Debug, Clone)]
pub struct NcuResult<'a> {
    kind: ResultKind,
    layout: Layout,
    message: Message<'a>,
    strings: Strings<'a>,
    /// Its metrics, once the report has been checked.
    metrics: &'a [MetricPosition],
    launch: NcuLaunch<'a>,
    references: Vec<u64>,
    creation_time: u64,
}

impl<'a> NcuResult<'a> {
    /// The bytes of the result in the unpacked report.
    pub fn byte_count(&self) -> usize {
        self.message.bytes().len()
    }

    /// The number of its metrics.
    pub fn metric_count(&self) -> usize {
        self.metrics.len()
    }

    pub(super) fn read(
        kind: ResultKind,
        message: Message<'a>,
        strings: Strings<'a>,
        notes: &mut Notes,
    ) -> Self {
        let layout = kind.layout();
        let mut result = NcuResult {
            kind,
            layout,
            message,
            strings,
            metrics: &[],
            launch: NcuLaunch::default(),
            references: Vec::new(),
            creation_time: 0,
        };
        notes.walk(message, layout.what, |notes, field| {
            if kind == ResultKind::Kernel {
                result.launch_field(field, notes)
            } else if field.number == layout.references {
                result.references.push(field.varint()?);
                Some(())
            } else {
                (field.number <= layout.published).then_some(())
            }
        });
        result
    }

    fn launch_field(&mut self, field: Field<'a>, notes: &mut Notes) -> Option<()> {
        let launch = &mut self.launch;
        match field.number {
            1 => launch.thread = field.varint()?,
            2 => launch.api_call = field.varint()?,
            5 => launch.mangled_name = field.text()?,
            6 => launch.function_name = field.text()?,
            7 => launch.demangled_name = field.text()?,
            10 => launch.grid = Dim3::read(field.message()?, notes),
            11 => launch.block = Dim3::read(field.message()?, notes),
            14 => self.creation_time = field.varint()?,
            15 => {
                let first = field.message()?.fields().flatten().find(|field| field.number == 1);
                self.references.extend(first.and_then(|field| field.varint()));
            }
            22 => launch.context = field.varint()?,
            23 => launch.stream = field.varint()?,
            31 => launch.renamed = field.text()?,
            number if number <= self.layout.published => {}
            _ => return None,
        }
        Some(())
    }

    /// The same result with the positions of its metrics, which [`check`](Self::check) returned.
    pub(super) fn with_metrics(self, metrics: &'a [MetricPosition]) -> Self {
        NcuResult { metrics, ..self }
    }

    /// Decodes everything that is otherwise decoded on demand, to note its problems. Returns the
    /// positions of the metrics.
    pub(super) fn check(&self, notes: &mut Notes) -> Vec<MetricPosition> {
        let metrics = self.messages(self.layout.metrics);
        let find = |metric| MetricPosition::find(self.message, metric, &self.strings, notes);
        let metrics = metrics.filter_map(find).collect();
        for message in self.messages(self.layout.rules) {
            Rule::read(message, notes);
        }
        if let Some(message) = self.nvtx_message() {
            NvtxState::read(message, notes);
        }
        metrics
    }

    /// Kind of the result.
    pub fn kind(&self) -> ResultKind {
        self.kind
    }

    /// Offset of the result in the uncompressed file.
    pub fn offset(&self) -> usize {
        self.message.offset()
    }

    /// The launch; only for kernels.
    pub fn launch(&self) -> Option<&NcuLaunch<'a>> {
        (self.kind == ResultKind::Kernel).then_some(&self.launch)
    }

    /// Time of creation as stored in the file; 0 if it is missing.
    pub fn creation_time(&self) -> u64 {
        self.creation_time
    }

    /// References to the sources that contain the kernels' code.
    pub fn source_references(&self) -> &[u64] {
        &self.references
    }

    /// The metrics in file order, decoded one by one; names may repeat.
    pub fn metrics(&self) -> Metrics<'a> {
        Metrics { positions: self.metrics.iter(), result: self.message, strings: self.strings }
    }

    /// The first metric of this name. It searches the result linearly: for many metrics use
    /// [`Self::metrics`].
    pub fn metric(&self, name: &str) -> Option<Metric<'a>> {
        let position = self.metrics.iter().find(|metric| metric.is_named(name, &self.strings))?;
        position.read(self.message, &self.strings)
    }

    /// The results of ncu's rules.
    pub fn rules(&self) -> impl Iterator<Item = Rule> + use<'a> {
        self.messages(self.layout.rules).map(|m| Rule::read(m, &mut Notes::default()))
    }

    /// The sections, which make up half of a full report; only their names are decoded.
    pub fn sections(&self) -> impl Iterator<Item = Section<'a>> + use<'a> {
        self.messages(self.layout.sections).map(Section::read)
    }

    /// The NVTX ranges that were open at the launch, or around the range.
    pub fn nvtx(&self) -> Option<NvtxState> {
        self.nvtx_message().map(|message| NvtxState::read(message, &mut Notes::default()))
    }

    fn nvtx_message(&self) -> Option<Message<'a>> {
        self.messages(self.layout.nvtx?).next()
    }

    fn messages(&self, number: u32) -> impl Iterator<Item = Message<'a>> + use<'a> {
        let fields = self.message.fields().flatten();
        fields.filter(move |field| field.number == number).filter_map(|field| field.message())
    }
}

/// Iterator over a result's metrics.
#[derive(Debug, Clone)]
pub struct Metrics<'a> {
    positions: std::slice::Iter<'a, MetricPosition>,
    result: Message<'a>,
    strings: Strings<'a>,
}

impl<'a> Iterator for Metrics<'a> {
    type Item = Metric<'a>;

    fn next(&mut self) -> Option<Metric<'a>> {
        self.positions.by_ref().find_map(|metric| metric.read(self.result, &self.strings))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.positions.len()))
    }
}
