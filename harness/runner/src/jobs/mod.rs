//! The jobs. Each is a process of its own, so that a crash in one leaves the others' reports.

pub(crate) mod cpu;
