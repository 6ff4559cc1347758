//! Remotes.
