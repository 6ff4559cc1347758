//! Reads `.ncu-rep` and `.ncu-repz`, the reports of NVIDIA Nsight Compute. Needs no NVIDIA
//! software.
//!
//! Layout (integers little endian), seen in files of ncu 2022.1.1, 2023.3.0 and 2025.3.1, which
//! all say file version 7. Message names and field numbers are those of the protobuf descriptions
//! that ncu installs under `extras/FileFormat`; each file here has the numbers that it reads.
//!
//! ```text
//! offset  size
//! 0       4     "NVR\0"           (28 b5 2f fd: a zstd frame around all of this, a .ncu-repz)
//! 4       4     n
//! 8       n     FileHeader {1 version}
//! 8+n     …     blocks until the end of the file:
//!                 4   h
//!                 h   BlockHeader {1 sources, 2 results, 3 session, 4 strings {1 repeated},
//!                       5 payload size, 6 process, 7 ranges, 8 command lists, 9 graphs}
//!                 payload: for each source, kernel result, range, command list and graph, in this
//!                   order: 4 bytes of length and the message
//! ```
//!
//! Peculiarities: a block may consist of a header alone; session details and strings are spread
//! over all blocks, and results use strings of later blocks; a metric may lack a value or be NaN;
//! units are not in the file ([`crate::units`]).
//!
//! There are three layers. [`wire`] iterates over messages in place; one file per message type
//! decodes it; [`NcuReport`] is the view of the whole report. The view borrows the file and stores
//! only positions: 8 bytes per string, 24 per result, 24 per metric. Metrics, rules and NVTX are
//! decoded on demand, but reading checks them all once, so that damage is known from the start.

mod block;
mod container;
mod error;
mod metric;
mod notes;
mod nvtx;
mod report;
mod result;
mod roofline;
mod rule;
mod section;
mod session;
mod source;
mod strings;
mod value;
pub use crate::wire;

pub use container::begins;
pub use error::{Error, Problem};
pub use metric::{Instance, Instances, Metric};
pub use notes::UnknownFields;
pub use nvtx::{NvtxDomain, NvtxStack, NvtxStartEnd, NvtxState};
pub use report::{NcuReadLimits, NcuReport};
pub use result::{Dim3, Metrics, NcuLaunch, NcuResult, ResultKind};
pub use roofline::{ArchFilter, MetricRef, Rate, RooflineChart, RooflinePoint};
pub use rule::{FocusMetric, MessageKind, Rule, RuleMessage, SourceMarker, Speedup, SpeedupScope};
pub use section::{Section, SectionTable};
pub use session::{Device, Executable, Process, Session, SessionSettings, System};
pub use source::{Function, Source, SourceFile};
pub use value::MetricValue;
