//! Recordings of a small machine, of which the truth is known.

mod changes;
mod machine;
mod random;
mod rules;
