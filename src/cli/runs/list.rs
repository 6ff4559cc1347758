//! `rgpu runs list`: the runs of this project.

use super::super::app::{App, Status};
use super::{cost_text, state_text};
use crate::error::Result;
use crate::report::{Align, Grid, bytes};
use crate::store::{RunState, Runs};

/// Lists the newest `count` runs.
pub(super) fn list(app: &App, runs: &Runs, count: usize) -> Result<Status> {
    let mut lines = runs.list()?;
    let all = lines.len();
    lines.truncate(count);
    if all > lines.len() {
        app.say(&format!("the newest {} of {all} runs; `--count {all}` shows all", lines.len()));
    }
    if app.global.json {
        app.print_json(&lines.iter().map(|l| &l.record).collect::<Vec<_>>())?;
        return Ok(0);
    }
    if all == 0 {
        app.say(&format!("no runs in {}", runs.root().display()));
        return Ok(0);
    }
    let mut grid = Grid::new(&[
        ("run", Align::Left),
        ("what", Align::Left),
        ("remote", Align::Left),
        ("state", Align::Left),
        ("time", Align::Right),
        ("cost", Align::Right),
        ("size", Align::Right),
        ("note", Align::Left),
    ]);
    for line in lines {
        let r = line.record;
        let state = state_text(&r);
        let away = r.state == RunState::Detached;
        grid.row([
            r.id,
            r.title,
            r.remote,
            state,
            // Of one that goes on by itself only its host knows.
            if away { String::new() } else { format!("{:.1} s", r.seconds) },
            cost_text(&r.cost).filter(|_| !away).unwrap_or_default(),
            bytes(line.bytes as f64),
            super::super::terminal::safe(r.note.as_bytes()),
        ]);
    }
    app.print(&grid.without_empty_columns().fitted(app.style().width, 0));
    Ok(0)
}
