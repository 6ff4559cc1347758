//! The kernels that a run or a report launched. Its modules often hold hundreds of others: those of
//! a library, or of a framework.

use std::collections::HashSet;
use std::path::Path;

use super::DisasmArgs;
use crate::cli::support::app::App;
use crate::cli::support::open_profile::open;
use rgpu_run::disasm::NamedInput;

/// The symbols of the launched kernels, if all inputs are runs or reports that name them. `None`:
/// all kernels are shown.
pub(super) fn symbols(
    app: &App,
    args: &DisasmArgs,
    named: &[NamedInput],
) -> Option<HashSet<String>> {
    if args.all_kernels || args.list || args.extract || !args.kernel_name.is_empty() {
        return None;
    }
    let mut symbols = HashSet::new();
    for input in named {
        let path = match input {
            NamedInput::Run(path) => path,
            NamedInput::File(path) if is_report(path) => path,
            NamedInput::File(_) | NamedInput::Path(_) => return None,
        };
        // An unreadable report gets its error when its code is read.
        let profile = open(app, path.to_str()?).ok()?.profile;
        let launched = profile.launches.into_iter().map(|launch| launch.mangled);
        symbols.extend(launched.collect::<Option<Vec<String>>>()?);
    }
    (!symbols.is_empty()).then_some(symbols)
}

fn is_report(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "ncu-rep" || ending == "ncu-repz")
}
