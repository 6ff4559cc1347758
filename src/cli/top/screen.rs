//! Owns the terminal while `rgpu top` shows its view: sets it up, reads keys, and restores it, also
//! after a panic or a signal. The data comes from a thread of [`TopReader`].

use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use super::data::TopReader;
use super::view::{ViewState, draw};
use super::{App, Tab};
use crate::cli::support::dashboard::context;
use crate::cli::support::signals;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_run::run::channel;

/// How often to look for signals while no key is pressed.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Shows the view until the user or a signal ends it.
pub(super) fn show(app: &App, first: Tab) -> Result<()> {
    let reader = TopReader::start(context(app)?);
    let (canceller, stop) = channel();
    signals::listen(canceller)?;
    ratatui::crossterm::style::force_color_output(app.terminal.stdout_color);
    // It also installs a panic hook that restores the terminal.
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let shown = follow(&reader, first, &mut terminal, || stop.request_count() > 0);
    ratatui::restore();
    shown.map_err(failed)
}

fn failed(e: std::io::Error) -> Failure {
    Failure::new(Exit::Usage, "no_terminal", "the terminal cannot be used").cause(e)
}

fn follow(
    reader: &TopReader,
    first: Tab,
    terminal: &mut ratatui::DefaultTerminal,
    is_stopped: impl Fn() -> bool,
) -> std::io::Result<()> {
    let mut state = ViewState { tab: first, scroll: 0 };
    while !is_stopped() {
        let data = reader.latest();
        terminal.draw(|frame| draw(frame, data.as_deref(), &mut state))?;
        if !event::poll(POLL_INTERVAL)? {
            continue;
        }
        if let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            let is_ctrl_c =
                key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                _ if is_ctrl_c => return Ok(()),
                KeyCode::Right | KeyCode::Tab => state.select_tab(1),
                KeyCode::Left | KeyCode::BackTab => state.select_tab(-1),
                KeyCode::Down => state.scroll = state.scroll.saturating_add(1),
                KeyCode::Up => state.scroll = state.scroll.saturating_sub(1),
                KeyCode::PageDown => state.scroll = state.scroll.saturating_add(10),
                KeyCode::PageUp => state.scroll = state.scroll.saturating_sub(10),
                _ => {}
            }
        }
    }
    Ok(())
}
