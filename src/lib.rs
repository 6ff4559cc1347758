//! rgpu.
