//! Names what a file holds if a filter of the user matched nothing.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rgpu_format::demangle::short;

use super::args::DisasmArgs;
use super::pattern;
use crate::cli::support::app::App;
use rgpu_model::error::{Exit, Failure, Result, nearest};
use rgpu_run::disasm::{self, ImageFilter, ImageTask};

/// How many names a message lists.
const MAX_SHOWN_NAMES: usize = 5;

/// The failure for `--arch` and `-k` that matched nothing in files with code. `None` if they are
/// not the cause.
pub(super) fn unmatched(args: &DisasmArgs, files: &[PathBuf]) -> Option<Failure> {
    if args.arch.is_empty() && args.kernel_name.is_empty() {
        return None;
    }
    let document = disasm::all(files, &ImageTask::default(), &|_| {});
    let images = || document.inputs.iter().flat_map(|i| &i.images);
    let arch_filter = ImageFilter { arches: args.arch.clone(), ..ImageFilter::default() };
    let of_arch = |arch: &str| arch_filter.matches_arch(arch);
    let arches: BTreeSet<&str> =
        images().map(|i| i.arch.as_str()).filter(|a| !a.is_empty()).collect();
    if !arches.iter().any(|arch| of_arch(arch)) {
        let available: Vec<&str> = arches.into_iter().collect();
        let message = format!("there is no code for {}", quoted(&args.arch));
        let failure = Failure::new(Exit::Artifact, "no_arch", message);
        return Some(if available.is_empty() {
            failure
        } else {
            failure.hint(format!("there is code for {}", available.join(", ")))
        });
    }
    let selected = images().filter(|i| of_arch(&i.arch));
    let mut names: BTreeSet<String> = BTreeSet::new();
    for image in selected {
        let kernels = image.kernels.iter().map(|k| k.name.as_deref().unwrap_or(&k.symbol));
        names.extend(kernels.map(|name| bare(name).to_owned()));
        let entries = image.entries.iter();
        names.extend(entries.map(|e| {
            bare(&rgpu_format::demangle::demangle(e).unwrap_or_else(|| e.clone())).to_owned()
        }));
    }
    if args.kernel_name.is_empty() || names.is_empty() {
        return None;
    }
    let similar: BTreeSet<&str> = args
        .kernel_name
        .iter()
        .filter(|typed| !typed.starts_with("regex:"))
        .flat_map(|typed| nearest(typed, names.iter().map(String::as_str)))
        .collect();
    let message = format!("no kernel is named {}", quoted(&args.kernel_name));
    let failure = Failure::new(Exit::Artifact, "no_kernel", message);
    let hint = if similar.is_empty() {
        let more = names.len().saturating_sub(MAX_SHOWN_NAMES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!(
            "there are {}{more}",
            backticked(names.iter().map(String::as_str).take(MAX_SHOWN_NAMES))
        )
    } else {
        format!("did you mean {}?", backticked(similar.into_iter().take(MAX_SHOWN_NAMES)))
    };
    Some(failure.hint(hint))
}

/// Reports each of several `-k` names that matched no kernel.
pub(super) fn report_unmatched_names<'k>(
    app: &App,
    args: &DisasmArgs,
    symbols: impl Iterator<Item = &'k str>,
) -> Result<()> {
    if args.kernel_name.len() < 2 {
        return Ok(());
    }
    let symbols: Vec<&str> = symbols.collect();
    for typed in &args.kernel_name {
        let name_filter = ImageFilter { kernels: vec![pattern(typed)?], ..ImageFilter::default() };
        if !symbols.iter().any(|symbol| name_filter.matches_kernel(symbol)) {
            app.print_note(&format!("no kernel is named `{typed}`"));
        }
    }
    Ok(())
}

/// A kernel's name as `-k` takes it: without return type, template arguments and parameters.
fn bare(name: &str) -> &str {
    let name = short(name);
    let name = name.strip_prefix("(anonymous namespace)::").unwrap_or(name);
    let end = name.find(['<', '(']).unwrap_or(name.len());
    name.get(..end).map_or(name, |name| name.rsplit(' ').next().unwrap_or(name))
}

fn quoted(all: &[String]) -> String {
    backticked(all.iter().map(String::as_str))
}

fn backticked<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<String> = all.map(|name| format!("`{name}`")).collect();
    all.join(", ")
}
