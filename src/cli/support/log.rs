//! The log behind `-vv` and `RGPU_LOG`: what a connection, an agent and a run do, for somebody who
//! wants to know why nothing happens. Messages for users do not go through it.
//!
//! Every event has a level and a target, the crate and module that writes it. `RGPU_LOG` chooses as
//! in other Rust programs: a level (`debug`), or `TARGET=LEVEL` pairs (`rgpu_remote=trace`). Events
//! name hosts, requests and sizes; bodies, environments and tokens never appear in one.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{self, FormatEvent, FormatFields};
use tracing_subscriber::fmt::{FmtContext, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use super::terminal::write_stderr;
use rgpu_model::error::{Exit, Failure, Result};

/// The variable that turns the log on.
pub(in crate::cli) const VARIABLE: &str = "RGPU_LOG";

/// The number of `-v` that turns the log on.
pub(in crate::cli) const LOG_VERBOSITY: u8 = 2;

/// Whether the log runs.
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// Whether the log runs, so that lines may come at any time.
pub(in crate::cli) fn is_running() -> bool {
    IS_RUNNING.load(Ordering::Relaxed)
}

/// Starts the log if `RGPU_LOG` or `-vv` asks for it.
pub(in crate::cli) fn start(verbose: u8) -> Result<()> {
    let targets = match std::env::var(VARIABLE) {
        Ok(filter) if !filter.trim().is_empty() => parse(&filter)?,
        _ if verbose >= LOG_VERBOSITY => Targets::new().with_target("rgpu", Level::DEBUG),
        _ => return Ok(()),
    };
    let lines = tracing_subscriber::fmt::layer()
        .event_format(LogLine { started: Instant::now() })
        .with_writer(StderrLines);
    // A second log in one process is the first one.
    let _ = tracing_subscriber::registry().with(targets).with(lines).try_init();
    IS_RUNNING.store(true, Ordering::Relaxed);
    Ok(())
}

fn parse(filter: &str) -> Result<Targets> {
    Targets::from_str(filter).map_err(|error| {
        let what = format!("`{VARIABLE}` is `{filter}`, which is no filter");
        Failure::new(Exit::Usage, "usage", what)
            .cause(error)
            .hint("a level (`debug`), or pairs such as `rgpu_remote=trace,rgpu_run=debug`")
    })
}

/// One event as one line: seconds since the start, level, target, text and fields.
struct LogLine {
    started: Instant,
}

impl<S, N> FormatEvent<S, N> for LogLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut line: format::Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let (level, target) = (event.metadata().level(), event.metadata().target());
        write!(line, "{:9.3} {level:5} {target}: ", self.started.elapsed().as_secs_f64())?;
        context.field_format().format_fields(line.by_ref(), event)?;
        writeln!(line)
    }
}

/// Writes whole lines to stderr, escaped like all other text.
#[derive(Clone, Copy)]
struct StderrLines;

impl io::Write for StderrLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        write_stderr(&String::from_utf8_lossy(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for StderrLines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_a_level_or_pairs_and_anything_else_is_a_usage_error() {
        let remote = parse("rgpu_remote=trace").unwrap();
        assert!(remote.would_enable("rgpu_remote::ssh", &Level::TRACE));
        assert!(!remote.would_enable("rgpu_run", &Level::ERROR));
        assert!(parse("debug").unwrap().would_enable("rgpu_run", &Level::DEBUG));
        let failure = parse("rgpu_remote=loud").unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
    }
}
