//! `--diff`: two builds held against each other.

use std::fmt::Write;

use super::{DisasmArgs, failure, meant, show, wanted};
use crate::cli::app::{App, Status};
use crate::cli::terminal::safe;
use crate::error::{Exit, Failure, Result};
use crate::model::disasm::{Change, Diff, Disasm, Sameness, Status as Ended};
use crate::run::disasm::{self, What};

/// Instructions named of one kernel.
const SHOWN: usize = 12;

/// Compares the two inputs named.
pub(super) fn run(app: &App, args: &DisasmArgs) -> Result<Status> {
    let [old, new] = args.what.as_slice() else {
        return Err(Failure::new(Exit::Usage, "usage", "a difference needs two sides")
            .hint("rgpu disasm --diff old.cubin new.cubin"));
    };
    let read = |name: &String| -> Result<Disasm> {
        let files = disasm::inputs(&meant(app, std::slice::from_ref(name))?)
            .map_err(|error| failure(&error))?;
        let what = What { wanted: wanted(args)?, threads: args.block, ..What::default() };
        let document = disasm::all(&files, &what, &|_| {});
        show::errors(app, &document);
        if document.inputs.iter().all(|i| i.status == Ended::Failed) {
            return Err(Failure::new(Exit::Artifact, "unreadable", "nothing of it could be read")
                .file(name));
        }
        Ok(document)
    };
    let diff = disasm::diff(&read(old)?, &read(new)?);
    if app.global.json {
        app.print_json(&diff)?;
    } else {
        app.print(&safe(text(&diff).as_bytes()));
    }
    let same = diff.added.is_empty()
        && diff.removed.is_empty()
        && diff.kernels.iter().all(|k| k.code == Sameness::Identical && k.changes.is_empty());
    Ok(if args.exit_code && !same { Exit::Findings as u8 } else { 0 })
}

fn text(diff: &Diff) -> String {
    let mut text = String::new();
    for kernel in &diff.kernels {
        let code = match kernel.code {
            Sameness::Identical => "identical code",
            Sameness::SameInstructions => {
                "the same instructions, with other registers, constants or scheduling"
            }
            Sameness::Different => "other instructions",
        };
        let _ = writeln!(text, "{} {}: {code}", kernel.arch, kernel.name);
        for change in &kernel.changes {
            let _ = writeln!(text, "  {}", line(change));
        }
        let named: Vec<String> = kernel.mnemonics.iter().take(SHOWN).map(line).collect();
        if !named.is_empty() {
            let more = kernel.mnemonics.len() - named.len();
            let more = if more > 0 { format!(", and {more} more") } else { String::new() };
            let _ = writeln!(text, "  {}{more}", named.join(", "));
        }
    }
    for (what, names) in
        [("only in the old one", &diff.removed), ("only in the new one", &diff.added)]
    {
        for name in names {
            let _ = writeln!(text, "{name}: {what}");
        }
    }
    text
}

fn line(change: &Change) -> String {
    let number = |n: Option<f64>| n.map_or("?".to_owned(), |n| n.to_string());
    let by = change.old.zip(change.new).map_or(String::new(), |(a, b)| format!(" ({:+})", b - a));
    format!("{} {} → {}{by}", change.what, number(change.old), number(change.new))
}
