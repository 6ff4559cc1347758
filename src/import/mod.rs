//! From the exact mirror of a foreign file to the model, one file for each kind of artifact.

pub mod ncu;
