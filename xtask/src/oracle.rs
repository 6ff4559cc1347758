//! Installs the reference for trace tests: Perfetto's own compiled protos, in a Python environment
//! in `.rgpu/perfetto`, pinned by hash.

use crate::environment::{self, EnvironmentError};
use crate::workspace::Workspace;

/// Creates `.rgpu/perfetto`, unless it is up to date.
pub(crate) fn provide(workspace: &Workspace) -> Result<(), EnvironmentError> {
    let list = workspace.root.join("xtask/test-wheels.txt");
    environment::provide(&workspace.root.join(".rgpu/perfetto"), &list)
}
