//! `report`: parts of a result that is there.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::ToolInfo;
use crate::mcp::answer::{self, Answer};
use crate::mcp::arguments::{argument_error, check_inside_project};
use crate::mcp::call::Call;
use crate::mcp::limit::{page, size};
use crate::mcp::run_result::{FindingLine, LaunchFigures, absence};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::suite::NO_GPU;
use rgpu_model::timeline::KernelSum;
use rgpu_model::{HotSpots, Launch, Profile, SharedText, Sidecars};
use rgpu_report::{KernelNames, ReportInput, Style, report};
use rgpu_run::store::Runs;
use rgpu_work::own_command::CommandLine;

pub(super) const TOOL: ToolInfo = ToolInfo {
    name: "report",
    title: "Read a result",
    does: "Shows parts of a run that is done, or of a report file (.ncu-rep, .nsys-rep, .sqlite): \
           summary, findings, launches, metrics by name, hot source lines, NVTX regions, kernels, \
           gaps. Nothing is measured.",
    use_when: "you have a run or a report file and want its numbers",
    not_for: &[
        ("measuring again", "profile"),
        ("what changed between two results", "compare"),
        ("the instructions of the code", "disasm"),
        ("finding runs, or waiting for one", "runs"),
    ],
    read_only: true,
    destructive: false,
    starts_runs: false,
    input: answer::input::<Arguments>,
    output: || answer::output(&[answer::schema::<ReportResult>]),
    call: |call| Box::pin(run(call)),
};

/// The items of a result, in bytes.
const ITEMS_BYTES: usize = 6000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// A run (id, unique beginning, `latest`, `latest~1`), or a report file of the project.
    of: String,
    /// Which part. Without it: summary.
    part: Option<Part>,
    /// Only launches of kernels whose name contains this (parts launches, metrics and hot_spots).
    kernel: Option<String>,
    /// The number of a launch (part metrics). Without it: the first that fits.
    launch: Option<u32>,
    /// Beginnings of names of metrics, e.g. ["dram__", "sm__throughput"] (part metrics).
    names: Option<Vec<String>>,
    /// How many items to skip.
    offset: Option<usize>,
    /// The most items: 20.
    count: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Part {
    /// The verdict, the main numbers and what to try.
    #[default]
    Summary,
    /// What to act on, most time at stake first.
    Findings,
    /// Each launch with its main counters.
    Launches,
    /// Counters of one launch by name.
    Metrics,
    /// Source lines with the most samples.
    HotSpots,
    /// NVTX regions with GPU and host time.
    Regions,
    /// Kernels with the sum of their launches.
    Kernels,
    /// What was not measured, and why.
    Gaps,
}

/// A part of a result.
#[serde_with::skip_serializing_none]
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct ReportResult {
    /// Name and version of this schema: `rgpu.mcp-report/1`.
    schema: String,
    /// The run, or the file.
    of: String,
    /// The part.
    part: Part,
    /// The rung that was reached: what the tools could see.
    rung: String,
    /// The GPU's name, e.g. `NVIDIA H200`.
    #[serialize_always]
    device: Option<String>,
    /// The summary, as text.
    summary: Option<String>,
    /// The launch whose metrics are shown.
    launch: Option<String>,
    /// Why there are no items.
    absent: Option<String>,
    /// The items of the part; each is an object.
    items: Vec<Value>,
    /// Of the names asked for, those that no metric begins with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unknown: Vec<String>,
    /// How many there are in all.
    all: usize,
    /// Where to go on, as `offset`; absent at the end.
    next_offset: Option<usize>,
    /// What was left out to stay short.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cut: Vec<String>,
}

/// A profile, and the numbers of its source lines if they are there.
struct OpenedResult {
    of: String,
    profile: Profile,
    hot_spots: Option<HotSpots>,
}

async fn run(call: Call) -> Result<Answer> {
    let arguments: Arguments = call.arguments()?;
    check_inside_project(call.context(), "of", &arguments.of)?;
    let of = arguments.of.clone();
    let wants_spots = matches!(arguments.part, Some(Part::HotSpots));
    let opened = call.reads(move |context| {
        let Ok(folder) = Runs::new(&context.runs).find_result(&of) else { return Ok(None) };
        let Ok(bytes) = folder.read("profile.json") else { return Ok(None) };
        let profile = rgpu_run::saved_json::from_slice(&bytes).map_err(|e| unreadable(&e))?;
        let hot_spots = if wants_spots { folder.read("hotspots.json").ok() } else { None };
        let hot_spots = hot_spots.and_then(|bytes| rgpu_run::saved_json::from_slice(&bytes).ok());
        let of = folder.record().map_or(of, |record| record.id);
        Ok(Some(OpenedResult { of, profile, hot_spots }))
    });
    let opened = match opened.await? {
        Some(opened) => opened,
        // A file, a comparison, or an invalid name; the command reports which.
        None => {
            let line = CommandLine::new(["report", &arguments.of]);
            let document = call.document(line).await?;
            if document["schema"] != rgpu_model::profile::SCHEMA {
                let of = arguments.of.clone();
                let id = call.reads(move |context| {
                    let folder = Runs::new(&context.runs).find_result(&of);
                    Ok(folder.ok().and_then(|folder| folder.record().ok()).map(|record| record.id))
                });
                return Err(no_single_run(&arguments.of, id.await?.as_deref(), &document));
            }
            let profile = serde_json::from_value(document).map_err(|e| unreadable(&e))?;
            let hot_spots = if wants_spots {
                let mut line = CommandLine::new(["disasm", &arguments.of]);
                line.arg("--hot");
                let document = call.document(line).await?;
                Some(serde_json::from_value(document).map_err(|e| unreadable(&e))?)
            } else {
                None
            };
            OpenedResult { of: arguments.of.clone(), profile, hot_spots }
        }
    };
    Answer::from_result(&result(&arguments, &opened)?)
}

/// What a result of several runs is, and the calls that show it and its runs. `id` is that of its
/// own run, if it has one.
fn no_single_run(of: &str, id: Option<&str>, document: &Value) -> Failure {
    let is = match id {
        Some(id) if id != of => format!("`{of}` is the run `{id}`,"),
        _ => format!("`{of}` is"),
    };
    let name = |side: &str| document[side]["name"].as_str().unwrap_or("?").to_owned();
    if document["schema"] == rgpu_model::comparison::SCHEMA {
        let (a, b) = (name("a"), name("b"));
        let failure =
            argument_error(format!("{is} a comparison of `{a}` with `{b}`, not a single run"));
        return match id {
            Some(id) => failure
                .hint(format!(
                    "runs {{\"action\": \"show\", \"run\": \"{id}\"}} shows the comparison"
                ))
                .hint(format!(
                    "the resources rgpu://runs/{id}/a/profile.json and \
                     rgpu://runs/{id}/b/profile.json are its sides"
                )),
            None => failure.hint(format!("name one of the two: `{a}` or `{b}`")),
        };
    }
    let remotes = document["remotes"].as_array().into_iter().flatten();
    let mut runs = remotes.filter_map(|row| row["run"].as_str()).peekable();
    if document["schema"] == rgpu_model::fan_out::SCHEMA && runs.peek().is_some() {
        let names: Vec<String> = runs.map(|run| format!("`{run}`")).collect();
        return argument_error(format!("{is} a run on several remotes, not a single run"))
            .hint(format!("name the run on one of them: {}", names.join(", ")));
    }
    argument_error(format!("{is} not a single run"))
        .hint("name a single one: runs {\"action\": \"list\"}")
}

fn unreadable(error: &serde_json::Error) -> Failure {
    Failure::new(Exit::Artifact, "unreadable", "the result cannot be read").cause(error)
}

fn result(arguments: &Arguments, opened: &OpenedResult) -> Result<ReportResult> {
    let OpenedResult { profile, .. } = opened;
    let names = KernelNames::default();
    let part = arguments.part.unwrap_or_default();
    let fits = |kernel: &str| arguments.kernel.as_deref().is_none_or(|part| kernel.contains(part));
    let launches = || profile.launches.iter().filter(|launch| fits(&launch.kernel));
    let mut summary = None;
    let mut launch_name = None;
    let mut unknown = Vec::new();
    let items: Vec<Value> = match part {
        Part::Summary => {
            let sidecars = Sidecars::default();
            let input = ReportInput::new(profile, &sidecars);
            summary = report("brief").map(|brief| brief.text(&input, &Style::default()));
            Vec::new()
        }
        Part::Findings => {
            let findings = profile.findings.iter();
            values(findings.map(|f| FindingLine::from_finding(profile, f, names)))
        }
        Part::Launches => {
            values(launches().map(|launch| LaunchFigures::from_launch(launch, names)))
        }
        Part::Metrics => {
            let is_asked = |launch: &&Launch| arguments.launch.is_none_or(|id| id == launch.id);
            let asked = arguments.names.as_deref().unwrap_or_default();
            match launches().find(is_asked) {
                Some(launch) => {
                    launch_name = Some(format!("{} {}", launch.id, names.name(&launch.kernel)));
                    let is_known =
                        |name: &str| launch.metrics.keys().any(|metric| metric.starts_with(name));
                    unknown.extend(asked.iter().filter(|name| !is_known(name)).cloned());
                    metrics(launch, asked)
                }
                None if profile.launches.is_empty() => Vec::new(),
                None => {
                    let ids: Vec<String> = launches().map(|launch| launch.id.to_string()).collect();
                    let ids = if ids.is_empty() { "none".to_owned() } else { ids.join(", ") };
                    return Err(argument_error("`launch`, `kernel`: no such launch")
                        .hint(format!("launches that match `kernel`: {ids}")));
                }
            }
        }
        Part::HotSpots => hot_spots(opened.hot_spots.as_ref(), fits),
        Part::Regions => values(&profile.regions),
        Part::Kernels => values(
            profile
                .kernels
                .iter()
                .map(|sum| KernelSum { kernel: names.name(&sum.kernel), ..sum.clone() }),
        ),
        Part::Gaps => values(profile.gaps.iter().chain(&profile.warnings)),
    };
    let offset = arguments.offset.unwrap_or(0);
    let listed = page(&items, offset, arguments.count.unwrap_or(20), ITEMS_BYTES);
    let is_empty = items.is_empty() && summary.is_none() && unknown.is_empty();
    let mut result = ReportResult {
        schema: "rgpu.mcp-report/1".to_owned(),
        of: opened.of.clone(),
        part,
        rung: profile.rung.to_string(),
        device: profile.device.clone(),
        summary,
        launch: launch_name,
        absent: is_empty.then(|| why_empty(arguments, part, profile)),
        unknown,
        all: items.len(),
        next_offset: (listed.end < items.len()).then_some(listed.end),
        items: items[listed].to_vec(),
        cut: Vec::new(),
    };
    // One item alone may be too long; `fit` shortens its lists then.
    if result.items.iter().map(size).sum::<usize>() > ITEMS_BYTES {
        result.items.truncate(1);
    }
    Ok(result)
}

/// Why a part has no items.
fn why_empty(arguments: &Arguments, part: Part, profile: &Profile) -> String {
    let no_gpu = profile.gaps.iter().find(|gap| gap.code == NO_GPU);
    let has_launches = !profile.launches.is_empty();
    let mode = profile.run.mode.as_str();
    let needs = |tool: &str| match (no_gpu, mode) {
        (Some(gap), _) => format!("{}: {}", gap.code, gap.text),
        (None, "") => format!("the report has none; mode {tool} of `profile` measures them"),
        (None, _) => absence(mode, &profile.ladder, tool),
    };
    match (part, arguments.kernel.as_deref()) {
        (Part::Launches | Part::HotSpots, Some(kernel)) if has_launches => {
            format!("no launch matches `{kernel}`")
        }
        (Part::Summary | Part::Findings, _) if no_gpu.is_some() => needs("ncu"),
        (Part::Summary | Part::Findings, _) => "no rule found anything to act on".to_owned(),
        (Part::HotSpots, _) if has_launches && mode != "nsys" => {
            "the launches have no samples for each instruction: profile with `set: full`".to_owned()
        }
        (Part::Launches | Part::Metrics | Part::HotSpots, _) => needs("ncu"),
        (Part::Kernels, _) => needs(if mode == "ncu" { "ncu" } else { "nsys" }),
        (Part::Regions, _) => "the program has no NVTX ranges, or none was recorded".to_owned(),
        (Part::Gaps, _) => "nothing requested is missing".to_owned(),
    }
}

fn values<T: Serialize>(items: impl IntoIterator<Item = T>) -> Vec<Value> {
    items.into_iter().filter_map(|item| serde_json::to_value(item).ok()).collect()
}

fn metrics(launch: &Launch, names: &[String]) -> Vec<Value> {
    let is_asked = |name: &str| names.is_empty() || names.iter().any(|n| name.starts_with(&**n));
    let metrics = launch.metrics.iter().filter(|(name, _)| is_asked(name));
    let value = |(name, metric): (&SharedText, &rgpu_model::Metric)| {
        let mut value = json!({"name": name, "value": metric.value});
        if !metric.unit.is_empty() {
            value["unit"] = metric.unit.as_str().into();
        }
        value
    };
    metrics.map(value).collect()
}

fn hot_spots(spots: Option<&HotSpots>, fits: impl Fn(&str) -> bool) -> Vec<Value> {
    let launches = spots.iter().flat_map(|spots| &spots.launches);
    let launches = launches.filter(|launch| fits(&launch.kernel));
    let mut lines: Vec<(u64, Value)> = Vec::new();
    for launch in launches {
        for line in &launch.lines {
            let samples = line.counts.samples.unwrap_or_default();
            let mut stalls: Vec<(&str, u64)> =
                line.counts.stalls.iter().map(|(name, count)| (name, *count)).collect();
            stalls.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            stalls.truncate(3);
            let share = launch.samples.filter(|all| *all > 0);
            lines.push((
                samples,
                json!({
                    "kernel": KernelNames::default().name(&launch.kernel),
                    "launch": launch.launch,
                    "line": format!("{}:{}", line.at.file, line.at.line),
                    "text": line.text,
                    "samples": samples,
                    "percent": share.map(|all| 100.0 * samples as f64 / all as f64),
                    "stalls": stalls,
                }),
            ));
        }
    }
    lines.sort_by_key(|(samples, _)| std::cmp::Reverse(*samples));
    lines.into_iter().map(|(_, line)| line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_of_several_runs_names_them_and_what_to_call() {
        let sides = json!({"schema": "rgpu.compare/1", "a": {"name": "old"}, "b": {"name": "new"}});
        let failure = no_single_run("latest", Some("r1"), &sides);
        assert_eq!(
            failure.what,
            "`latest` is the run `r1`, a comparison of `old` with `new`, not a single run"
        );
        assert!(failure.hints[0].starts_with("runs {\"action\": \"show\", \"run\": \"r1\"}"));
        assert!(failure.hints[1].contains("rgpu://runs/r1/b/profile.json"));
        let rows =
            json!([{"remote": "x", "run": "r2"}, {"remote": "y"}, {"remote": "z", "run": "r3"}]);
        let several = json!({"schema": "rgpu.fan_out/1", "remotes": rows});
        let failure = no_single_run("f", Some("f"), &several);
        assert_eq!(failure.what, "`f` is a run on several remotes, not a single run");
        assert_eq!(failure.hints, ["name the run on one of them: `r2`, `r3`"]);
    }
}
