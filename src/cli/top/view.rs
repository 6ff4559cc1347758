//! Draws the view. Text of hosts and of a loop's workers is untrusted, so [`draw`] replaces its
//! control characters.

mod hosts;

use std::iter::zip;

use jiff::Timestamp;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Cell, Chart, Dataset, GraphType, Paragraph, Row, Table, Tabs};
use unicode_width::UnicodeWidthStr;

use self::hosts::time_since;
use super::Tab;
use super::data::{LoopData, QueueData, TopData};
use crate::cli::support::entry_text::{seconds_text, silence_text};
use crate::cli::support::terminal::is_bidi;
use rgpu_report::{cut_end, one_line, time_span};
use rgpu_work::loops::{LoopMode, LoopStatus, Outcome, Phase};
use rgpu_work::queue::EntryState;

const TABS: [Tab; 3] = [Tab::Hosts, Tab::Queue, Tab::Loop];

/// What the user chose to see.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ViewState {
    pub(super) tab: Tab,
    /// The number of rows above the first shown one; drawing lowers it to what the table allows.
    pub(super) scroll: usize,
}

impl ViewState {
    fn index(&self) -> usize {
        TABS.iter().position(|tab| *tab == self.tab).unwrap_or(0)
    }

    /// Goes to the next tab, or with -1 to the one before.
    pub(super) fn select_tab(&mut self, step: isize) {
        let count = TABS.len() as isize;
        let next = (self.index() as isize + step).rem_euclid(count);
        self.tab = TABS[next.unsigned_abs()];
        self.scroll = 0;
    }
}

/// Draws everything. `data` is `None` until something was read.
pub(super) fn draw(frame: &mut Frame<'_>, data: Option<&TopData>, state: &mut ViewState) {
    let rows = [Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)];
    let [top, middle, bottom] = Layout::vertical(rows).areas(frame.area());
    let tabs = Tabs::new(["hosts", "queue", "loop"]).select(state.index());
    frame.render_widget(tabs.highlight_style(Style::new().reversed()), top);
    match data {
        Some(data) => draw_tab(frame, middle, data, state),
        None => draw_message(frame, middle, "the project is being read"),
    }
    let width = usize::from(bottom.width);
    let help = match data.and_then(|data| data.problem.as_deref()) {
        Some(problem) => Line::from(cut_end(&one_line(problem), width)).red(),
        None => {
            let project = data.map(|data| one_line(&data.project)).unwrap_or_default();
            Line::from(cut_end(&format!("← → tab  ↑ ↓ scroll  q end  {project}"), width)).dim()
        }
    };
    frame.render_widget(help, bottom);
    for cell in &mut frame.buffer_mut().content {
        if cell.symbol().contains(|c: char| c.is_control() || is_bidi(c)) {
            cell.set_symbol("·");
        }
    }
}

fn draw_tab(frame: &mut Frame<'_>, area: Rect, data: &TopData, state: &mut ViewState) {
    match state.tab {
        Tab::Hosts => hosts::draw_hosts(frame, area, data, state),
        Tab::Queue => match &data.queue {
            Some(queue) => draw_queue(frame, area, queue, state),
            None => {
                draw_message(frame, area, "no queue in this project: rgpu queue add -- COMMAND")
            }
        },
        Tab::Loop => match &data.loop_data {
            Some(loop_data) => draw_loop(frame, area, (loop_data, data.now), state),
            None => draw_message(frame, area, "no loop in this project: rgpu loop start loop.toml"),
        },
    }
}

/// The columns inside a frame.
fn inner_width(area: Rect) -> usize {
    usize::from(area.width.saturating_sub(2))
}

/// A frame around an area. A title that is too long for it is cut.
fn frame_with_title(area: Rect, title: &str) -> Block<'static> {
    Block::bordered().title(cut_end(title, inner_width(area)))
}

fn draw_message(frame: &mut Frame<'_>, area: Rect, text: &str) {
    let text = cut_end(text, inner_width(area));
    frame.render_widget(Paragraph::new(text).block(Block::bordered()), area);
}

/// A row of a table. Its second cell, the state, has the colour.
struct TableRow<const N: usize> {
    cells: [String; N],
    color: Color,
}

/// Draws a table from the row that the user scrolled to. A text that is too long for its cell is
/// cut.
fn draw_table<const N: usize>(
    frame: &mut Frame<'_>,
    area: Rect,
    state: &mut ViewState,
    title: &str,
    (header, widths): ([&'static str; N], [Constraint; N]),
    rows: Vec<TableRow<N>>,
) {
    // Two lines of the frame and one of the header.
    let room = usize::from(area.height.saturating_sub(3));
    state.scroll = state.scroll.min(rows.len().saturating_sub(room));
    let block = frame_with_title(area, title);
    let columns: [Rect; N] = Layout::horizontal(widths).spacing(1).areas(block.inner(area));
    let shown = rows.iter().skip(state.scroll).take(room).map(|row| {
        let cells = zip(&row.cells, columns).enumerate().map(|(at, (text, column))| {
            let cell = Cell::from(cut_end(text, usize::from(column.width)));
            if at == 1 { cell.style(row.color) } else { cell }
        });
        Row::new(cells)
    });
    let table = Table::new(shown, columns.map(|column| Constraint::Length(column.width)))
        .header(Row::new(header).bold())
        .block(block);
    frame.render_widget(table, area);
}

fn draw_queue(frame: &mut Frame<'_>, area: Rect, queue: &QueueData, state: &mut ViewState) {
    let count = |wanted| queue.entries.iter().filter(|entry| entry.state == wanted).count();
    let runner = match queue.runner {
        Some(pid) => format!("process {pid} runs it"),
        None => "nothing runs it: rgpu queue run".to_owned(),
    };
    let paused = if queue.is_paused { ", paused" } else { "" };
    let title = format!(
        "{} waiting, {} running, {} entries; {runner}{paused}",
        count(EntryState::Waiting),
        count(EntryState::Running),
        queue.entries.len()
    );
    // What runs and waits comes first, then what has ended, last added first.
    let mut entries: Vec<_> = queue.entries.iter().collect();
    entries.sort_by_key(|entry| match entry.state {
        EntryState::Running => (0, entry.id),
        EntryState::Waiting => (1, entry.id),
        _ => (2, -entry.id),
    });
    let rows = entries.into_iter().map(|entry| {
        let color = match entry.state {
            EntryState::Running => Color::Yellow,
            EntryState::Ok => Color::Green,
            EntryState::Waiting | EntryState::Skipped | EntryState::Cancelled => Color::Reset,
            _ => Color::Red,
        };
        let seconds = entry.seconds.map(seconds_text).unwrap_or_default();
        let why = entry.reason.clone().or_else(|| silence_text(entry)).unwrap_or_default();
        let cells = [
            entry.id.to_string(),
            entry.state.as_str().to_owned(),
            seconds,
            one_line(&entry.name),
            one_line(&why),
        ];
        TableRow { cells, color }
    });
    let widths = [
        Constraint::Length(6),
        Constraint::Length(9),
        Constraint::Length(8),
        Constraint::Fill(3),
        Constraint::Fill(2),
    ];
    let header = ["id", "state", "time", "name", "reason"];
    draw_table(frame, area, state, &title, (header, widths), rows.collect());
}

fn draw_loop(
    frame: &mut Frame<'_>,
    area: Rect,
    (loop_data, now): (&LoopData, Timestamp),
    state: &mut ViewState,
) {
    let lines = head_lines(loop_data, now, inner_width(area));
    // Two lines of the frame.
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
    let parts = [Constraint::Length(height), Constraint::Percentage(40), Constraint::Min(0)];
    let [head, middle, bottom] = Layout::vertical(parts).areas(area);
    let status = &loop_data.status;
    let block = frame_with_title(head, &status.id);
    frame.render_widget(Paragraph::new(lines).block(block), head);
    let [left, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Fill(2)]).areas(middle);
    draw_best(frame, left, status);
    draw_iterations(frame, right, status, state);
    let room = usize::from(bottom.height.saturating_sub(2));
    let from = loop_data.lines.len().saturating_sub(room);
    let cut = |line: &String| Line::from(cut_end(line, inner_width(bottom)));
    let lines: Vec<Line<'_>> = loop_data.lines[from..].iter().map(cut).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title("run.log")), bottom);
}

/// Phase, heartbeat, best, target, time left and what a manual loop waits for, in lines of at most
/// `width` columns.
fn head_lines(loop_data: &LoopData, now: Timestamp, width: usize) -> Vec<Line<'static>> {
    let status = &loop_data.status;
    let phase = status.phase_text;
    let alive = match (status.phase, status.pid, &loop_data.heartbeat) {
        (Phase::Stopped, ..) => {
            status.stop.as_ref().map(|stop| stop.text.clone()).unwrap_or_default()
        }
        (_, Some(pid), Some(heartbeat)) => match time_since(&heartbeat.at, now).as_str() {
            "" => format!("process {pid}"),
            age => format!("process {pid}, last sign of life {age} ago"),
        },
        (_, Some(pid), None) => format!("process {pid}"),
        (_, None, _) => "nothing runs it: rgpu loop resume".to_owned(),
    };
    let best = match (&status.best, status.speedup()) {
        (Some(best), Some(speedup)) => {
            let time = best.time.as_ref().map(|time| format!("{:.2} µs", time.gmean_us));
            let time = time.unwrap_or_default();
            match best.iteration {
                0 => format!("best {time}, the start"),
                iteration => format!(
                    "best {time}, {speedup:.3} times as fast as the start (iteration {iteration})"
                ),
            }
        }
        _ => "best not measured".to_owned(),
    };
    let target = status.target.threshold.map_or("no target".to_owned(), |threshold| {
        format!("target {} {threshold}", status.target.metric.as_str())
    });
    let seconds_left = (status.max_active_s - status.active_s).max(0.0);
    let left = match status.phase {
        Phase::Stopped => String::new(),
        _ => format!(", {} left", time_span(seconds_left)),
    };
    let left = format!(
        "iteration {} of {}{left}; {} kept, {} without progress",
        status.iteration, status.max_iterations, status.kept, status.no_progress
    );
    let dry_run = match status.mode {
        LoopMode::DryRun => ", dry-run: nothing is measured",
        LoopMode::Manual | LoopMode::Command => "",
    };
    let room = width.saturating_sub(phase.width() + 2);
    let first = [Span::from(phase).bold(), Span::from("  "), Span::from(cut_end(&alive, room))];
    let awaited = status.awaited.iter().flat_map(|answer| {
        [format!("waits for {}", answer.file), format!("prompt    {}", answer.prompt)]
    });
    let others = [format!("{}{dry_run}", status.kernel_path), best, target, left];
    let others = others.into_iter().chain(awaited);
    let others = others.map(|line| Line::from(cut_end(&line, width)));
    [Line::from_iter(first)].into_iter().chain(others).collect()
}

/// The best time after each iteration.
fn draw_best(frame: &mut Frame<'_>, area: Rect, status: &LoopStatus) {
    let start = status.start.as_ref().and_then(|start| start.time.as_ref());
    let mut points: Vec<(f64, f64)> = start.map(|time| (0.0, time.gmean_us)).into_iter().collect();
    for record in &status.iterations {
        let kept = record.confirmation.as_ref().filter(|_| record.outcome == Outcome::Kept);
        let before = points.last().map(|(_, time)| *time);
        if let Some(time) = kept.map(|second| second.new.gmean_us).or(before) {
            points.push((f64::from(record.iteration), time));
        }
    }
    if points.is_empty() {
        return draw_message(frame, area, "nothing has been timed yet");
    }
    let last = points.last().map_or(1.0, |(at, _)| at.max(1.0));
    let high = points.iter().map(|(_, time)| *time).fold(0.0, f64::max) * 1.05;
    let data = Dataset::default()
        .marker(Marker::Braille)
        .graph_type(GraphType::Line)
        .data(&points)
        .green();
    let labels = |high: f64| ["0".to_owned(), format!("{high:.0}")];
    let chart = Chart::new(vec![data])
        .block(Block::bordered().title("best so far, µs"))
        .x_axis(Axis::default().bounds([0.0, last]).labels(labels(last)))
        .y_axis(Axis::default().bounds([0.0, high]).labels(labels(high)));
    frame.render_widget(chart, area);
}

/// The iterations, newest first.
fn draw_iterations(frame: &mut Frame<'_>, area: Rect, status: &LoopStatus, state: &mut ViewState) {
    let rows = status.iterations.iter().rev().map(|record| {
        let color = match record.outcome {
            Outcome::Kept => Color::Green,
            Outcome::Wrong | Outcome::Refused | Outcome::NotBelieved | Outcome::WorkerFailed => {
                Color::Red
            }
            _ => Color::Reset,
        };
        let speedup = record.comparison.as_ref().map(|it| format!("{:.3}", it.speedup));
        let cells = [
            record.iteration.to_string(),
            record.outcome.as_str().to_owned(),
            speedup.unwrap_or_default(),
            one_line(&record.reason),
        ];
        TableRow { cells, color }
    });
    let widths =
        [Constraint::Length(5), Constraint::Length(14), Constraint::Length(8), Constraint::Fill(1)];
    let header = ["iter", "outcome", "speedup", "why"];
    draw_table(frame, area, state, "iterations", (header, widths), rows.collect());
}

#[cfg(test)]
mod tests;
