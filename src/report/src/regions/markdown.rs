//! `report.md` and `region.md`: the regions as Markdown.

use crate::TextTable;
use crate::blocks::{Block, Blocks, TableBlock, plain, to_markdown};
use crate::quantity::{digits, duration, percent};
use rgpu_model::metric::{MAIN_METRICS, MainMetric};
use rgpu_model::number_form::by_number;
use rgpu_model::regions::{RegionEntry, RegionLaunch, RegionsDocument};

/// The maximum number of rows per table.
const MAX_ROWS: usize = 50;

/// All regions of a run.
pub(super) fn consolidated(document: &RegionsDocument) -> String {
    let mut out = Blocks::default();
    out.add(Block::Title(format!("Regions of {}", document.kernel), String::new()));
    let device = document.device.as_ref().map(|name| format!(", {name}")).unwrap_or_default();
    let (run, mode, rung) = (&document.run, &document.mode, &document.rung);
    out.note(format!("Run `{run}`, mode {mode}, rung `{rung}`{device}"));
    selection(&mut out, document);
    let regions = regions(document);
    out.heading("regions");
    if regions.is_empty() {
        out.note("No region was selected.");
    }
    out.full_table(TableBlock { table: regions, is_markdown: true, ..TableBlock::default() });
    out.heading("totals");
    out.note(format!(
        "{} regions; {} launches in the whole run, {} of kernel time by the tool",
        document.totals.regions,
        document.totals.launches,
        duration(document.totals.kernel_ns as f64),
    ));
    out.heading("missing");
    if document.gaps.is_empty() {
        out.note("Nothing that was requested is missing.");
    }
    for gap in &document.gaps {
        out.add(Block::Detail("", format!("`{}`: {}", gap.code, gap.text)));
    }
    if !document.fingerprint.is_empty() {
        out.note(format!("Fingerprint `{}`", document.fingerprint));
    }
    to_markdown(&out.0)
}

/// The regions with links to their folders, as Markdown.
fn regions(document: &RegionsDocument) -> TextTable {
    let time = |ns: Option<u64>| ns.map(|ns| duration(ns as f64)).unwrap_or_default();
    TextTable::of(
        &document.regions,
        &[
            ("region", &|entry| plain(&entry.name)),
            ("kind", &|entry| kind(entry)),
            ("count:", &|entry| entry.region.instances.map(|n| n.to_string()).unwrap_or_default()),
            ("host:", &|entry| time(entry.region.host_ns)),
            ("GPU:", &|entry| time(entry.region.gpu_ns)),
            ("share:", &|entry| entry.share_percent.map(percent).unwrap_or_default()),
            ("launches:", &|entry| match entry
                .region
                .kernels
                .iter()
                .map(|k| k.launches)
                .sum::<u64>()
            {
                0 => String::new(),
                launches => launches.to_string(),
            }),
            ("whole range:", &|entry| {
                whole(entry).and_then(|l| l.duration_ns).map(duration).unwrap_or_default()
            }),
            ("folder", &|entry| match entry.folder.as_str() {
                "" => String::new(),
                folder => format!("[{folder}]({folder}/region.md)"),
            }),
        ],
    )
}

/// `push/pop` or `start/end`.
fn kind(entry: &RegionEntry) -> String {
    entry.region.kind.replace('_', "/")
}

fn selection(out: &mut Blocks, document: &RegionsDocument) {
    out.heading("selection");
    let start = out.0.len();
    let mut item = |text: String| out.add(Block::Detail("", text));
    if let Some(selection) = &document.selection {
        for choice in selection.regions.iter().filter(|choice| !choice.matched.is_empty()) {
            item(format!("`{}`: {}", choice.asked, choice.matched.join(", ")));
        }
        for asked in &document.no_match {
            let seen = match selection.regions_seen.join(", ") {
                seen if seen.is_empty() => seen,
                seen => format!("; the program has {seen}"),
            };
            item(format!("`{asked}`: no matching region{seen}"));
        }
        let lists = [
            ("kernels", &selection.kernel_names),
            ("kernels left out", &selection.kernel_excludes),
            ("sections", &selection.sections),
            ("metrics", &selection.metrics),
        ];
        for (what, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            item(format!("{what}: `{}`", list.join("`, `")));
        }
        selection.set.iter().for_each(|set| item(format!("set of sections: `{set}`")));
        if !selection.replay_mode.is_empty() {
            item(format!("replay mode: {}", selection.replay_mode));
        }
        selection.left_out.iter().for_each(|left| item(format!("left out: {}", left.text)));
    }
    if out.0.len() == start {
        out.note("Every region of the program.");
    }
}

/// Renders the page of one region, below `regions/`.
pub(super) fn region(document: &RegionsDocument, entry: &RegionEntry) -> String {
    let region = &entry.region;
    let mut out = Blocks::default();
    out.add(Block::Title(format!("Region {}", entry.name), String::new()));
    let (run, kernel, rung) = (&document.run, &document.kernel, &document.rung);
    let mut text = format!("Run `{run}` of {kernel}, rung `{rung}`; {} range", kind(entry));
    let facts = [
        region.instances.map(|n| match n {
            1 => "entered once".to_owned(),
            n => format!("entered {n} times"),
        }),
        region.host_ns.map(|ns| format!("{} on the host", duration(ns as f64))),
        region.gpu_ns.map(|ns| format!("{} on the GPU", duration(ns as f64))),
        entry.share_percent.map(|share| format!("{} of all kernel time", percent(share))),
    ];
    facts.into_iter().flatten().for_each(|fact| text += &format!(", {fact}"));
    out.note(text);
    let mut table = TextTable::new("kernel | launches: | total: | mean:");
    for kernel in region.kernels.iter().take(MAX_ROWS) {
        let mean = kernel.total_ns as f64 / kernel.launches.max(1) as f64;
        let total = duration(kernel.total_ns as f64);
        let launches = kernel.launches.to_string();
        table.add_row([kernel.kernel.clone(), launches, total, duration(mean)]);
    }
    for kernel in region.ranges.iter().flat_map(|range| &range.kernels).take(MAX_ROWS) {
        table.add_row([kernel.clone(), "1".to_owned()]);
    }
    out.table_or("kernels", table, "No kernel was launched in this region.");
    if let Some(result) = whole(entry) {
        let mut table = TextTable::new("metric | value:");
        let time = result.duration_ns.map(duration).unwrap_or_default();
        table.add_row(["duration".to_owned(), time]);
        for main in MAIN_METRICS {
            if let Some(x) = number(result, main) {
                table.add_row([main.head.to_owned(), digits(x)]);
            }
        }
        out.table("the range as a whole", table);
        let n = result.metrics.len();
        out.note(format!("{n} {} in `region.json`", by_number(n, "metric is", "metrics are")));
    }
    let measured = entry.launches.iter().filter(|launch| !launch.metrics.is_empty());
    let inside: Vec<_> = measured.filter(|launch| !is_whole(entry, launch)).collect();
    let metrics: String = MAIN_METRICS.iter().map(|main| format!("{}: | ", main.head)).collect();
    let mut table = TextTable::new(&format!("launch: | kernel | duration: | {metrics}bound by"));
    for launch in inside.iter().take(MAX_ROWS) {
        let time = launch.duration_ns.map(duration).unwrap_or_default();
        let first = [launch.launch.to_string(), launch.kernel.clone(), time];
        let numbers = MAIN_METRICS.map(|main| number(launch, main).map(digits).unwrap_or_default());
        let bound_by = launch.bound_by.clone().unwrap_or_default().replace('_', " ");
        table.add_row(first.into_iter().chain(numbers).chain([bound_by]));
    }
    out.table("launches", table);
    if inside.len() > MAX_ROWS {
        out.note(format!("… and {} more in `kernels.csv`", inside.len() - MAX_ROWS));
    }
    if !entry.waiting.is_empty() {
        out.heading("waiting");
        out.note("Time without any kernel before a kernel of this region:");
    }
    let waiting = TextTable::of(
        &entry.waiting,
        &[
            ("cause", &|wait| wait.cause.replace('_', " ")),
            ("time:", &|wait| duration(wait.total_ns as f64)),
        ],
    );
    out.table("", waiting);
    to_markdown(&out.0)
}

/// The first result that covers the whole region.
fn whole(entry: &RegionEntry) -> Option<&RegionLaunch> {
    entry.launches.iter().find(|launch| is_whole(entry, launch))
}

fn is_whole(entry: &RegionEntry, launch: &RegionLaunch) -> bool {
    entry.region.ranges.iter().any(|range| range.launch == launch.launch)
}

fn number(launch: &RegionLaunch, main: MainMetric) -> Option<f64> {
    main.ids.iter().find_map(|id| launch.metrics.get(*id)?.value.as_f64())
}
