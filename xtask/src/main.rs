//! See the crate description; filled in by its own module files.
fn main() {}
