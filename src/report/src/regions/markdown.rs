//! `report.md` and `region.md`: the regions as Markdown.

use crate::TextTable;
use crate::markdown::plain;
use crate::quantity::{digits, duration, percent};
use rgpu_model::metric::{MAIN_METRICS, MainMetric};
use rgpu_model::number_form::by_number;
use rgpu_model::regions::{RegionEntry, RegionLaunch, RegionsDocument};

/// The maximum number of rows per table.
const MAX_ROWS: usize = 50;

/// All regions of a run.
pub(super) fn consolidated(document: &RegionsDocument) -> String {
    let mut out = format!("# Regions of {}\n\n", plain(&document.kernel));
    out += &format!(
        "Run `{}`, mode {}, rung `{}`{}.\n\n",
        document.run,
        document.mode,
        document.rung,
        document.device.as_ref().map(|name| format!(", {}", plain(name))).unwrap_or_default()
    );
    out += "## Selection\n\n";
    out += &selection(document);
    out += "## Regions\n\n";
    let mut table = TextTable::new(
        "region | kind | count: | host: | GPU: | share: | launches: | whole range: | folder",
    );
    let time = |ns: Option<u64>| ns.map(|ns| duration(ns as f64)).unwrap_or_default();
    for entry in &document.regions {
        let region = &entry.region;
        let launches: u64 = region.kernels.iter().map(|kernel| kernel.launches).sum();
        table.add_row([
            plain(&entry.name),
            region.kind.replace('_', "/"),
            region.instances.map(|n| n.to_string()).unwrap_or_default(),
            time(region.host_ns),
            time(region.gpu_ns),
            entry.share_percent.map(percent).unwrap_or_default(),
            if launches > 0 { launches.to_string() } else { String::new() },
            whole(entry).and_then(|l| l.duration_ns).map(duration).unwrap_or_default(),
            match entry.folder.as_str() {
                "" => String::new(),
                folder => format!("[{folder}]({folder}/region.md)"),
            },
        ]);
    }
    section(&mut out, table, "No region was selected.");
    out += "## Totals\n\n";
    out += &format!(
        "{} regions; {} launches in the whole run, {} of kernel time by the tool.\n\n",
        document.totals.regions,
        document.totals.launches,
        duration(document.totals.kernel_ns as f64),
    );
    out += "## Missing\n\n";
    if document.gaps.is_empty() {
        out += "Nothing that was requested is missing.\n";
    }
    for gap in &document.gaps {
        out += &format!("- `{}`: {}\n", gap.code, plain(&gap.text));
    }
    if !document.fingerprint.is_empty() {
        out += &format!("\nFingerprint `{}`.\n", document.fingerprint);
    }
    out
}

fn selection(document: &RegionsDocument) -> String {
    let Some(selection) = &document.selection else {
        return "Every region of the program.\n\n".to_owned();
    };
    let mut out = String::new();
    for choice in selection.regions.iter().filter(|choice| !choice.matched.is_empty()) {
        out += &format!("- `{}`: {}\n", choice.asked, plain(&choice.matched.join(", ")));
    }
    for asked in &document.no_match {
        out += &format!("- `{asked}`: **no matching region**");
        let seen = &selection.regions_seen;
        if !seen.is_empty() {
            out += &format!("; the program has {}", plain(&seen.join(", ")));
        }
        out += "\n";
    }
    let lists = [
        ("kernels", &selection.kernel_names),
        ("kernels left out", &selection.kernel_excludes),
        ("sections", &selection.sections),
        ("metrics", &selection.metrics),
    ];
    for (what, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        out += &format!("- {what}: `{}`\n", list.join("`, `"));
    }
    if let Some(set) = &selection.set {
        out += &format!("- set of sections: `{set}`\n");
    }
    if !selection.replay_mode.is_empty() {
        out += &format!("- replay mode: {}\n", selection.replay_mode);
    }
    for left in &selection.left_out {
        out += &format!("- left out: {}\n", plain(&left.text));
    }
    if out.is_empty() {
        out += "Every region of the program.\n";
    }
    out + "\n"
}

/// Renders the page of one region, below `regions/`.
pub(super) fn region(document: &RegionsDocument, entry: &RegionEntry) -> String {
    let region = &entry.region;
    let mut out = format!("# Region {}\n\n", plain(&entry.name));
    out += &format!(
        "Run `{}` of {}, rung `{}`; {} range",
        document.run,
        plain(&document.kernel),
        document.rung,
        region.kind.replace('_', "/"),
    );
    let facts = [
        region.instances.map(|n| match n {
            1 => "entered once".to_owned(),
            n => format!("entered {n} times"),
        }),
        region.host_ns.map(|ns| format!("{} on the host", duration(ns as f64))),
        region.gpu_ns.map(|ns| format!("{} on the GPU", duration(ns as f64))),
        entry.share_percent.map(|share| format!("{} of all kernel time", percent(share))),
    ];
    facts.into_iter().flatten().for_each(|fact| out += &format!(", {fact}"));
    out += ".\n\n## Kernels\n\n";
    let mut table = TextTable::new("kernel | launches: | total: | mean:");
    for kernel in region.kernels.iter().take(MAX_ROWS) {
        let mean = kernel.total_ns as f64 / kernel.launches.max(1) as f64;
        let total = duration(kernel.total_ns as f64);
        table.add_row([plain(&kernel.kernel), kernel.launches.to_string(), total, duration(mean)]);
    }
    for kernel in region.ranges.iter().flat_map(|range| &range.kernels).take(MAX_ROWS) {
        table.add_row([plain(kernel), "1".to_owned(), String::new(), String::new()]);
    }
    section(&mut out, table, "No kernel was launched in this region.");
    if let Some(result) = whole(entry) {
        out += "## The range as a whole\n\n";
        let mut table = TextTable::new("metric | value:");
        table
            .add_row(["duration".to_owned(), result.duration_ns.map(duration).unwrap_or_default()]);
        for main in MAIN_METRICS {
            if let Some(x) = number(result, main) {
                table.add_row([main.head.to_owned(), digits(x)]);
            }
        }
        section(&mut out, table, "");
        let n = result.metrics.len();
        let are = by_number(n, "metric is", "metrics are");
        out += &format!("{n} {are} in `region.json`.\n\n");
    }
    let measured = entry.launches.iter().filter(|launch| !launch.metrics.is_empty());
    let inside: Vec<_> = measured.filter(|launch| !is_whole(entry, launch)).collect();
    if !inside.is_empty() {
        out += "## Launches\n\n";
        let metrics: String =
            MAIN_METRICS.iter().map(|main| format!("{}: | ", main.head)).collect();
        let head = format!("launch: | kernel | duration: | {metrics}bound by");
        let mut table = TextTable::new(&head);
        for launch in inside.iter().take(MAX_ROWS) {
            let mut cells = vec![
                launch.launch.to_string(),
                plain(&launch.kernel),
                launch.duration_ns.map(duration).unwrap_or_default(),
            ];
            let numbers = MAIN_METRICS.iter().map(|main| number(launch, *main));
            cells.extend(numbers.map(|x| x.map(digits).unwrap_or_default()));
            cells.push(launch.bound_by.clone().unwrap_or_default().replace('_', " "));
            table.add_row(cells);
        }
        section(&mut out, table, "");
        if inside.len() > MAX_ROWS {
            out += &format!("… and {} more in `kernels.csv`.\n\n", inside.len() - MAX_ROWS);
        }
    }
    if !entry.waiting.is_empty() {
        out += "## Waiting\n\nTime without any kernel before a kernel of this region:\n\n";
        let mut table = TextTable::new("cause | time:");
        for wait in &entry.waiting {
            table.add_row([wait.cause.replace('_', " "), duration(wait.total_ns as f64)]);
        }
        section(&mut out, table, "");
    }
    out.truncate(out.trim_end().len());
    out + "\n"
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

fn section(out: &mut String, table: TextTable, empty: &str) {
    if table.is_empty() {
        *out += &format!("{empty}\n\n");
    } else {
        *out += &format!("{}\n", table.without_empty_columns().markdown());
    }
}
