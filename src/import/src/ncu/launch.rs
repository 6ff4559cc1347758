//! Converts one result of an ncu report to a [`Launch`] of the profile.

use rgpu_format::ncu_rep::{
    Dim3, MessageKind, Metric, NcuLaunch as Kernel, NcuResult, ResultKind, Rule,
};

use super::metrics::{self, AbsentMetrics, KnownOrder, KnownUnits};
use super::roofline::KnownCharts;
use super::{region, roofline, section, series};
use crate::Detail;
use rgpu_model::Launch;
use rgpu_model::launch;
use rgpu_model::launch::RuleMessage;

/// The facts that all launches of a report share.
#[derive(Debug, Default)]
pub(super) struct ReportContext<'a> {
    pub(super) absent: AbsentMetrics,
    pub(super) units: KnownUnits,
    pub(super) order: KnownOrder,
    charts: KnownCharts<'a>,
}

/// The launch of a result with all its metrics.
pub(super) fn import<'a>(
    result: &NcuResult<'a>,
    metrics: &[Metric<'a>],
    id: u32,
    from: &str,
    known: &mut ReportContext<'a>,
    detail: Detail,
) -> Launch {
    let scalars = metrics::import(metrics, from, known, detail);
    let mut launch = Launch { id, metrics: scalars, ..Launch::default() };
    match result.launch() {
        Some(kernel) => {
            launch.kernel = name(kernel);
            launch.mangled = Some(kernel.mangled_name.to_string()).filter(|name| !name.is_empty());
            launch.grid = dim(kernel.grid);
            launch.block = dim(kernel.block);
            launch.stream = Some(kernel.stream);
        }
        // A range or graph has no name of its own; its kernels are the instances of a metric.
        None => {
            let what = match result.kind() {
                ResultKind::Graph => launch::GRAPH_PREFIX,
                _ => "range of ",
            };
            launch.kernel = format!("{what}{}", kernels_of_range(result).join(", "));
        }
    }
    if let Some(state) = result.nvtx() {
        let thread = result.launch().map(|kernel| kernel.thread);
        let around = region::path(&state, thread, &launch.kernel);
        (launch.region, launch.region_inferred) = (around.path.into(), around.is_inferred);
    }
    launch.duration_ns = launch.number("gpu__time_duration.sum");
    launch.registers = whole(launch.number("launch__registers_per_thread"));
    launch.shared_bytes = shared_bytes(&launch);
    let rules = result.rules().flat_map(rule_messages);
    let (sections, rules): (Vec<_>, Vec<_>) = rules.unzip();
    launch.rules = rules;
    launch.roofline = roofline::import(result, &launch, &mut known.charts);
    if detail == Detail::Full {
        launch.raw_sections = section::import(result, metrics, &launch, &sections);
        launch.series = series::import(result, metrics);
    }
    launch
}

/// The kernel's name. For an `extern "C"` kernel ncu's demangled name is empty, so the symbol is
/// used.
fn name(kernel: &Kernel<'_>) -> String {
    let names = [&kernel.demangled_name, &kernel.function_name, &kernel.mangled_name];
    names.into_iter().find(|name| !name.is_empty()).map(|name| name.to_string()).unwrap_or_default()
}

fn dim(dim: Dim3) -> [u32; 3] {
    [dim.x, dim.y, dim.z].map(|size| u32::try_from(size).unwrap_or(u32::MAX))
}

fn whole(number: Option<f64>) -> Option<u32> {
    number.filter(|number| (0.0..=f64::from(u32::MAX)).contains(number)).map(|number| number as u32)
}

fn shared_bytes(launch: &Launch) -> Option<u64> {
    let of_static = launch.number("launch__shared_mem_per_block_static");
    let dynamic = launch.number("launch__shared_mem_per_block_dynamic");
    let sum = of_static? + dynamic?;
    (sum >= 0.0).then_some(sum as u64)
}

pub(super) fn kernels_of_range(result: &NcuResult<'_>) -> Vec<String> {
    let names = result.metric("launch__kernel_name");
    let names = names.iter().flat_map(|metric| metric.instances());
    names.filter_map(|instance| instance.value.text().map(str::to_owned)).collect()
}

/// A rule's messages with their section. The first one carries the rule's estimated speedup.
fn rule_messages(rule: Rule) -> Vec<(String, RuleMessage)> {
    let mut estimate = rule.speedup.map(|speedup| speedup.percent).filter(|x| x.is_finite());
    let messages = rule.messages.into_iter().map(|message| {
        let message = RuleMessage {
            rule: rule.identifier.clone(),
            kind: message_kind(message.kind),
            title: message.title,
            text: message.text,
            speedup_percent: estimate.take(),
        };
        (rule.section.clone(), message)
    });
    messages.collect()
}

fn message_kind(kind: MessageKind) -> launch::MessageKind {
    match kind {
        MessageKind::Ok => launch::MessageKind::Ok,
        MessageKind::Warning => launch::MessageKind::Warning,
        MessageKind::Error => launch::MessageKind::Error,
        MessageKind::Optimization => launch::MessageKind::Optimization,
        MessageKind::None | MessageKind::Other(_) => launch::MessageKind::None,
    }
}
