//! Markdown reports for run folders, pull requests and readers who do not read profiles: one file
//! each for the run, its kernels, its operators, and a summary for stakeholders.
//!
//! Every file always has all its headings; a section without data says why.

mod stakeholder;

use super::blocks::{Block, Blocks, to_markdown};
use super::phrase::{memory_text, model_text};
use super::quantity::per_second;
use super::sections::stages;
use super::sections::timeline::{kernels, no_kernels};
use super::sections::{View, report};
use super::{Document, ReportInput, Style};
use rgpu_model::Profile;

/// `report.md`, `kernels.md`, `operators.md`, `stakeholder_summary.md`.
pub(super) fn render(subject: &ReportInput<'_>, style: &Style) -> Vec<Document<'static>> {
    let view = View::new(subject.profile, style.names, true);
    let documents = [
        ("report.md", report(subject, &view)),
        ("kernels.md", all_kernels(&view)),
        ("operators.md", all_operators(&view)),
        ("stakeholder_summary.md", stakeholder::report(subject, &view)),
    ];
    documents.map(|(name, blocks)| Document::new(name, to_markdown(&blocks.0))).into()
}

/// The kernels by GPU time, and the tool's own names of those that are shortened, for a search in
/// other reports.
fn all_kernels(view: &View<'_>) -> Blocks {
    let mut out = Blocks::default();
    out.add(Block::Title(format!("Kernels of {}", view.profile.kernel.name), String::new()));
    out.table_or("", kernels(view, usize::MAX), no_kernels(view.profile));
    let names = view.profile.kernels.iter().map(|k| (view.names.name(&k.kernel), &k.kernel));
    let shortened: Vec<_> = names.filter(|(short, full)| short != *full).collect();
    if !shortened.is_empty() {
        out.heading("full names");
    }
    shortened.into_iter().for_each(|(short, full)| out.field(short, full));
    out
}

/// The operators of a framework with the kernels that they launched, and the stages of its model.
fn all_operators(view: &View<'_>) -> Blocks {
    let profile = view.profile;
    let mut out = Blocks::default();
    out.add(Block::Title(format!("Operators of {}", profile.kernel.name), String::new()));
    profile.kernel.model.iter().for_each(|model| out.field("model", model_text(model)));
    profile.memory.iter().for_each(|memory| out.field("memory", memory_text(memory)));
    out.table("stages", stages::table(profile));
    add_peak(&mut out, profile);
    let operators = stages::operators(view, profile.operators.iter());
    out.table_or("operators", operators, NO_OPERATORS);
    out
}

/// Why a report has no operators.
const NO_OPERATORS: &str = "This run has no torch trace, the only source of operators.";

/// Adds what the MFU of a model's stages is a share of.
fn add_peak(out: &mut Blocks, profile: &Profile) {
    let peak = profile.stages.iter().find_map(|stage| stage.utilization.as_ref());
    if let Some(peak) = peak {
        let (mfu, rate) = (stages::mfu_name(profile), per_second(peak.peak, "FLOP"));
        out.note(format!("{mfu} is the share of {rate}: {} ({})", peak.label, peak.source));
    }
    stages::mfu_note(profile).into_iter().for_each(|note| out.note(note));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KernelNames;
    use rgpu_model::Operator;
    use rgpu_model::timeline::KernelSum;

    #[test]
    fn full_names_are_below_the_table() {
        let full = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>>(int, T2)";
        let kernel = |name: &str| KernelSum { kernel: name.to_owned(), ..KernelSum::default() };
        let kernels = vec![kernel(full), kernel("mine")];
        let profile = Profile { kernels, ..Profile::default() };
        let text = |names| to_markdown(&all_kernels(&View::new(&profile, names, true)).0);
        let short = text(KernelNames::Short);
        assert!(short.contains("| fill f32 |"), "{short}");
        assert!(short.contains("- fill f32: void at::native::vectorized\\_elementwise"), "{short}");
        assert!(!short.contains("- mine"), "{short}");
        assert!(!text(KernelNames::Full).contains("Full names"));
    }

    #[test]
    fn times_of_operators_have_the_unit_that_fits() {
        let operator = Operator {
            name: "aten::mm".to_owned(),
            host_ns: 123_456_789_000,
            host_self_ns: 1_204_000,
            gpu_ns: Some(59_712),
            ..Operator::default()
        };
        let profile = Profile { operators: vec![operator], ..Profile::default() };
        let text = to_markdown(&all_operators(&View::new(&profile, KernelNames::Short, true)).0);
        assert!(text.ends_with("| aten::mm | 0 | 59.7 µs | 123 s | 1.20 ms |\n"), "{text}");
    }
}
