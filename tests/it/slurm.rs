//! A cluster of Slurm: played in every run of the tests, and real in `.ci/long`.

mod cluster;
mod played;
mod real;
