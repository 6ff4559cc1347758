//! Tests every reader with real and synthetic fixtures, complete and damaged.

#![allow(clippy::unwrap_used)]

mod container;
mod corpus;
mod cubin;
mod cubin_lines;
mod damage;
mod fixture;
mod ncu_rep;
mod ncu_rep_damage;
mod ncu_rep_fixtures;
mod nsys_rep;
mod nsys_sqlite;
mod nvtx_log;
mod sanitizer;
mod sass;
