//! Tests of the layout algebra against its definitions, and of the sm_100 layouts against golden
//! values.

#![allow(clippy::unwrap_used)]

mod access;
mod blocks;
mod brute;
mod compose;
mod kernel;
mod laws;
mod published;
mod pycute;
mod sm100;
mod text;
mod wagmiv67;
