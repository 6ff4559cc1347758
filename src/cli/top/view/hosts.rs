//! The tab of hosts: each host with its GPUs and its health, and below the runs in progress.

use std::time::Duration;

use jiff::Timestamp;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph};
use rgpu_protocol::probe::GpuFacts;

use super::{ViewState, draw_message};
use crate::cli::top::data::TopData;
use crate::dashboard::{HealthLevel, HostState, RunningRun};
use rgpu_report::{TextTable, age, bytes, cut_end, one_line};
use rgpu_work::queue::EntryState;

/// The columns of hosts that a narrow terminal lacks, the least important first.
const SPARE_HOST_COLUMNS: [&str; 5] = ["address", "CUDA", "waiting", "seen", "memory"];

/// The columns of runs that a narrow terminal lacks.
const SPARE_RUN_COLUMNS: [&str; 1] = ["title"];

/// The last column, of sentences that may wrap, gets this many characters before others are shown.
const MIN_SENTENCE_WIDTH: usize = 24;

/// The lines of a frame above and below its text.
const FRAME_LINES: usize = 2;

/// Draws the hosts, and below them the runs. Both scroll together, each to its own end.
pub(super) fn draw_hosts(frame: &mut Frame<'_>, area: Rect, data: &TopData, state: &mut ViewState) {
    let width = usize::from(area.width).saturating_sub(FRAME_LINES);
    let (hosts, runs) = (host_lines(data, width), run_lines(data, width));
    // If both parts fit, both are shown whole. Else each gets half, and the rest that the other
    // leaves.
    let (height, wanted) = (usize::from(area.height), runs.len().max(1) + FRAME_LINES);
    let host_height = (hosts.len() + FRAME_LINES).min(height - wanted.min(height / 2));
    let parts = [Constraint::Length(host_height as u16), Constraint::Min(0)];
    let [top, bottom] = Layout::vertical(parts).areas(area);
    let of_hosts = Block::bordered().title(count(data.hosts.len(), "host") + ", as last seen");
    let mut end = draw_lines(frame, top, of_hosts, hosts, state.scroll);
    if data.running.is_empty() {
        let text = match running_entries(data) {
            _ if data.reading => "the runs are being read".to_owned(),
            Some(entries) => format!("no run is running; the queue runs {entries}"),
            None => "no run is running: rgpu profile --kernel KERNEL starts one".to_owned(),
        };
        draw_message(frame, bottom, &text);
    } else {
        let mut title = count(data.running_count, "run") + " not ended";
        if data.running.len() < data.running_count {
            title += &format!(", the newest {}", data.running.len());
        }
        let mut of_runs = Block::bordered().title(title);
        if data.running.iter().any(|run| run.followed_by.is_none()) {
            of_runs = of_runs.title_bottom("rgpu runs attach RUN follows a run to its end");
        }
        end = end.max(draw_lines(frame, bottom, of_runs, runs, state.scroll));
    }
    state.scroll = state.scroll.min(end);
}

/// The entries that the queue runs: `entry 3: NAME` or `entries 3, 4`. `None` if there is none.
fn running_entries(data: &TopData) -> Option<String> {
    let entries = data.queue.as_ref()?.entries.iter();
    let running: Vec<_> = entries.filter(|entry| entry.state == EntryState::Running).collect();
    match &running[..] {
        [] => None,
        [entry] => Some(format!("entry {}: {}", entry.id, one_line(&entry.name))),
        several => {
            let numbers: Vec<String> = several.iter().map(|entry| entry.id.to_string()).collect();
            Some(format!("entries {}", numbers.join(", ")))
        }
    }
}

fn count(n: usize, noun: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {noun}{plural}")
}

/// Draws lines of which the first is the header, from the one that the user scrolled to. Returns
/// how far they can be scrolled.
fn draw_lines(
    frame: &mut Frame<'_>,
    area: Rect,
    block: Block<'_>,
    lines: Vec<Line<'static>>,
    scroll: usize,
) -> usize {
    let room = usize::from(area.height).saturating_sub(FRAME_LINES);
    let end = lines.len().saturating_sub(room);
    let mut lines = lines.into_iter();
    let header = lines.next().into_iter();
    let shown: Vec<Line<'_>> = header.chain(lines.skip(scroll.min(end))).collect();
    frame.render_widget(Paragraph::new(shown).block(block), area);
    end
}

/// A table as lines, the header first. Each row has a colour; its further lines, which are
/// indented, have it too.
fn table_lines(table: &TextTable, width: usize, colors: &[Color]) -> Vec<Line<'static>> {
    let text = table.plain(width, 0);
    let mut lines = text.lines().map(|line| cut_end(line, width));
    let header = lines.next().map(|header| Line::from(header).bold());
    let mut colors = colors.iter();
    let mut color = Color::Reset;
    let rows = lines.map(|line| {
        if !line.starts_with(' ') {
            color = colors.next().copied().unwrap_or_default();
        }
        Line::styled(line, Style::new().fg(color))
    });
    header.into_iter().chain(rows).collect()
}

fn host_lines(data: &TopData, width: usize) -> Vec<Line<'static>> {
    let mut table = TextTable::new(
        "host | address | GPU | name | memory: | driver | CUDA | seen: | runs: | waiting: | health",
    );
    let mut colors = Vec::new();
    for host in &data.hosts {
        let facts = host.facts.as_ref();
        let text = |text: Option<&String>| one_line(text.map(String::as_str).unwrap_or_default());
        let number = |n: usize| if n == 0 { String::new() } else { n.to_string() };
        let mut gpus = gpu_groups(facts.map(|facts| &*facts.gpus).unwrap_or_default()).into_iter();
        let no_gpu = [String::new(), "no GPU".to_owned(), String::new()];
        let [gpu, name, memory] = match facts {
            Some(_) => gpus.next().unwrap_or(no_gpu),
            None => Default::default(),
        };
        table.add_row([
            one_line(&host.name),
            one_line(&host.address),
            gpu,
            name,
            memory,
            text(facts.and_then(|facts| facts.driver.as_ref())),
            text(facts.and_then(|facts| facts.cuda.as_ref())),
            host.asked.as_ref().map(|asked| time_since(asked, data.now)).unwrap_or_default(),
            number(host.running.len()),
            number(host.waiting),
            health(host, data),
        ]);
        for [gpu, name, memory] in gpus {
            let none = String::new;
            table.add_row([none(), none(), gpu, name, memory]);
        }
        colors.push(match host.health.level {
            _ if host.failed_try.is_some() => Color::Red,
            HealthLevel::Issue => Color::Red,
            HealthLevel::Warning => Color::Yellow,
            HealthLevel::Ok | HealthLevel::Unknown => Color::Reset,
        });
    }
    let table = table.without_empty_columns();
    let table = table.with_room(width, MIN_SENTENCE_WIDTH, &SPARE_HOST_COLUMNS);
    table_lines(&table, width, &colors)
}

/// The GPUs of a host: indices, name with the count, memory. Equal GPUs in a row are one group.
fn gpu_groups(gpus: &[GpuFacts]) -> Vec<[String; 3]> {
    let is_equal = |a: &GpuFacts, b: &GpuFacts| {
        (&a.name, a.memory_bytes, a.mig) == (&b.name, b.memory_bytes, b.mig)
    };
    let group = |group: &[GpuFacts]| {
        let (first, last) = (group.first()?, group.last()?);
        let indices = match group.len() {
            1 => first.index.to_string(),
            _ => format!("{}-{}", first.index, last.index),
        };
        let times = if group.len() > 1 { format!("{} × ", group.len()) } else { String::new() };
        let mig = if first.mig { " (MIG)" } else { "" };
        let memory = match first.memory_bytes {
            0 => String::new(),
            n => bytes(n as f64),
        };
        Some([indices, format!("{times}{}{mig}", one_line(&first.name)), memory])
    };
    gpus.chunk_by(is_equal).filter_map(group).collect()
}

/// The health of a host in one sentence.
fn health(host: &HostState, data: &TopData) -> String {
    let health = &host.health;
    let text = match health.level {
        HealthLevel::Unknown if host.failed_try.is_some() => String::new(),
        // The facts may be those of a run that is not read yet.
        HealthLevel::Unknown if data.reading => "the runs are being read".to_owned(),
        HealthLevel::Unknown => format!("never asked: rgpu remote check {}", host.name),
        HealthLevel::Ok => "healthy".to_owned(),
        HealthLevel::Issue => health.issues.join("; "),
        HealthLevel::Warning => {
            let missing = match health.missing.join(", ") {
                missing if missing.is_empty() => None,
                missing => Some(format!("missing: {missing}")),
            };
            let others = health.warnings.iter().chain(&health.outdated).cloned();
            others.chain(missing).collect::<Vec<_>>().join("; ")
        }
    };
    let failed = host.failed_try.as_ref().map(|failed| {
        format!("not reached {} ago: {}", time_since(&failed.at, data.now), failed.text)
    });
    let parts: Vec<String> =
        failed.into_iter().chain([text]).filter(|part| !part.is_empty()).collect();
    one_line(&parts.join("; "))
}

fn run_lines(data: &TopData, width: usize) -> Vec<Line<'static>> {
    let mut table = TextTable::new("run | title | remote | since: | phase");
    let mut colors = Vec::new();
    for RunningRun { run, phase, followed_by, .. } in &data.running {
        table.add_row([
            one_line(&run.id),
            one_line(&run.title),
            one_line(&run.remote),
            time_since(&run.started, data.now),
            one_line(phase.as_deref().unwrap_or(run.state.as_str())),
        ]);
        colors.push(if followed_by.is_some() { Color::Reset } else { Color::Yellow });
    }
    let table = table.with_room(width, MIN_SENTENCE_WIDTH, &SPARE_RUN_COLUMNS);
    table_lines(&table, width, &colors)
}

/// How long ago a moment (RFC 3339) was; empty for what is no moment, or is to come.
pub(super) fn time_since(moment: &str, now: Timestamp) -> String {
    let seconds = moment.parse().ok().map(|at: Timestamp| now.as_second() - at.as_second());
    let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    seconds.map(|seconds| age(Duration::from_secs(seconds))).unwrap_or_default()
}
