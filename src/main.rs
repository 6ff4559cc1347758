//! The `rgpu` command.
fn main() {}
