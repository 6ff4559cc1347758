//! Texts for reports on what was not measured. The profile's gaps come in. Kernels get the short
//! names that the tables of the report use, and gaps with the same text for several kernels become
//! one text.

use super::kernel_name::KernelLabels;
use rgpu_model::profile::Gap;

/// Something that was not measured, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MissingText<'a> {
    /// The code of the gap.
    pub(super) code: &'a str,
    pub(super) text: String,
}

/// The texts of gaps, in order. A gap about one kernel begins with its name: `` `gemm`: left out …
/// ``; gaps that differ only in that name are joined.
pub(super) fn texts<'a>(
    gaps: impl Iterator<Item = &'a Gap>,
    names: &KernelLabels<'_>,
) -> Vec<MissingText<'a>> {
    let mut joined: Vec<(&Gap, Vec<String>, &str)> = Vec::new();
    for gap in gaps {
        let (subject, rest) = split_subject(&gap.text);
        let subject = subject.map(|subject| {
            let kernels = subject_names(subject).into_iter().map(|kernel| names.name(kernel));
            format!("`{}`", kernels.collect::<Vec<_>>().join("`, `"))
        });
        let same = joined.iter_mut().find(|(first, subjects, text)| {
            subject.is_some() && !subjects.is_empty() && first.code == gap.code && *text == rest
        });
        match same {
            Some((_, subjects, _)) => subjects.extend(subject),
            None => joined.push((gap, subject.into_iter().collect(), rest)),
        }
    }
    let text = |(gap, subjects, rest): (&'a Gap, Vec<String>, &str)| {
        let text = if subjects.is_empty() {
            rest.to_owned()
        } else {
            format!("{}: {rest}", subjects.join(", "))
        };
        MissingText { code: &gap.code, text }
    };
    joined.into_iter().map(text).collect()
}

/// The kernel, region or filter that a text is about, and the rest.
fn split_subject(text: &str) -> (Option<&str>, &str) {
    match text.strip_prefix('`').and_then(|text| text.split_once("`: ")) {
        Some((subject, rest)) => (Some(subject), rest),
        None => (None, text),
    }
}

/// The full names of the kernels in a gap's subject, which is a name or the exact filter of a pass.
fn subject_names(subject: &str) -> Vec<&str> {
    let exact = subject.strip_prefix("regex:^").and_then(|filter| filter.strip_suffix('$'));
    let exact = exact.unwrap_or(subject);
    match exact.strip_prefix('(').and_then(|several| several.strip_suffix(')')) {
        Some(several) => several.split('|').collect(),
        None => vec![exact],
    }
}

/// The full names in backticks in the texts of these gaps, each with its short form: kernels and
/// metrics.
pub(super) fn short_forms<'a>(
    gaps: impl Iterator<Item = &'a Gap>,
    names: &KernelLabels<'_>,
) -> Vec<(&'a str, String)> {
    let mut all = Vec::new();
    for gap in gaps {
        let (subject, rest) = split_subject(&gap.text);
        let kernels = subject.into_iter().flat_map(subject_names);
        all.extend(kernels.map(|kernel| (kernel, names.name(kernel))));
        let metrics = rest.split('`').skip(1).step_by(2);
        all.extend(metrics.filter_map(|name| Some((name, metric_label(name)?))));
    }
    all.retain(|(name, short)| name != short);
    all
}

/// Units of NVIDIA's metrics, and what they are.
const UNITS: &[(&str, &str)] = &[
    ("derived", "derived"),
    ("device", "device"),
    ("dram", "DRAM"),
    ("fbpa", "DRAM controllers"),
    ("gpc", "GPC"),
    ("gpu", "GPU"),
    ("gr", "graphics engine"),
    ("l1tex", "L1"),
    ("launch", "launch"),
    ("ltc", "L2"),
    ("lts", "L2"),
    ("nvlrx", "NVLink"),
    ("nvltx", "NVLink"),
    ("pcie", "PCIe"),
    ("sass", "SASS"),
    ("sm", "SM"),
    ("smsp", "SM partitions"),
    ("tpc", "TPC"),
];

/// Words of NVIDIA's metrics that are short for others.
const ABBREVIATIONS: &[(&str, &str)] = &[
    ("inst", "instructions"),
    ("mem", "memory"),
    ("op", "operation"),
    ("pct", "%"),
    ("pcsamp", "samples"),
    ("pred", "predicate"),
    ("req", "requests"),
    ("src", "source"),
    ("thread", "threads"),
];

/// A readable name of a metric, such as `L1: data bank conflicts pipe lsu (sum)`; `None` if `name`
/// is no metric.
fn metric_label(name: &str) -> Option<String> {
    let (unit, rest) = name.split_once("__")?;
    let (_, unit) = UNITS.iter().find(|(known, _)| *known == unit)?;
    let mut parts = rest.split('.');
    let counter = expand_abbreviations(parts.next()?);
    let rollup: Vec<String> = parts.map(expand_abbreviations).collect();
    Some(if rollup.is_empty() {
        format!("{unit}: {counter}")
    } else {
        format!("{unit}: {counter} ({})", rollup.join(", "))
    })
}

fn expand_abbreviations(part: &str) -> String {
    let word = |word| ABBREVIATIONS.iter().find(|(short, _)| *short == word).map_or(word, |w| w.1);
    part.split('_').filter(|w| !w.is_empty()).map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KernelNames;
    use rgpu_model::Profile;
    use rgpu_model::selection::KernelChoice;
    use rgpu_model::{Selection, timeline::KernelSum};

    fn gap(code: &str, text: &str) -> Gap {
        Gap { code: code.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn gaps_of_several_kernels_become_one_text_with_their_short_names() {
        let gaps = [
            gap("fewer_launches", "`void add<(int)1>(int)`: 0 of 3 launches were profiled"),
            gap("fewer_launches", "`regex:^mul$`: 0 of 3 launches were profiled"),
            gap("no_kernels", "`regex:^(a|b)$`: no counters"),
            gap("note", "`--cuda-graph-trace=node` shows the kernels inside"),
        ];
        let profile = Profile::default();
        let names = KernelNames::Short.labels(&profile);
        let missing = texts(gaps.iter(), &names);
        let missing: Vec<_> = missing.iter().map(|text| (text.code, &*text.text)).collect();
        assert_eq!(
            missing,
            [
                ("fewer_launches", "`add<1>`, `mul`: 0 of 3 launches were profiled"),
                ("no_kernels", "`a`, `b`: no counters"),
                ("note", "`--cuda-graph-trace=node` shows the kernels inside"),
            ]
        );
    }

    /// As the tables of the same profile have them.
    #[test]
    fn a_kernel_that_only_the_selection_names_has_its_label() {
        let functor = "at::native::CUDAFunctor_add<float>";
        let [strided, vectorized] = ["elementwise_kernel", "vectorized_elementwise_kernel"]
            .map(|kernel| format!("void at::native::{kernel}<(int)4, {functor}>(int)"));
        let choice = KernelChoice { kernel: strided.clone(), ..KernelChoice::default() };
        let profile = Profile {
            kernels: vec![KernelSum { kernel: vectorized, ..KernelSum::default() }],
            selection: Some(Selection { kernels: vec![choice], ..Selection::default() }),
            ..Profile::default()
        };
        let gaps = [gap("budget_kernel", &format!("`{strided}`: left out"))];
        let missing = texts(gaps.iter(), &KernelNames::Short.labels(&profile));
        assert_eq!(missing[0].text, "`add f32 strided`: left out");
    }

    #[test]
    fn names_of_metrics_become_words() {
        assert_eq!(
            metric_label("sass__inst_executed_register_spilling_mem_local").unwrap(),
            "SASS: instructions executed register spilling memory local"
        );
        assert_eq!(
            metric_label("sm__throughput.avg.pct_of_peak_sustained_elapsed").unwrap(),
            "SM: throughput (avg, % of peak sustained elapsed)"
        );
        assert_eq!(metric_label("--cuda-graph-trace=node"), None);
        assert_eq!(metric_label("cupy_copy__float32_float32"), None);
        let gaps = [gap("nan_metric", "2 metrics: `sm__a.sum`, `dram__b`"), gap("note", "`k`: no")];
        let profile = Profile::default();
        let forms = short_forms(gaps.iter(), &KernelNames::Short.labels(&profile));
        assert_eq!(
            forms,
            [("sm__a.sum", "SM: a (sum)".to_owned()), ("dram__b", "DRAM: b".to_owned())]
        );
    }
}
