//! `rgpu queue log`: prints the output of an entry, and follows it.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use clap::Args;

use crate::cli::support::app::{App, Status};
use crate::cli::support::terminal::{incomplete_tail_len, write_program_output};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_work::queue::{Queue, QueueEntryDocument};

/// How often to look for more output.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Most bytes of output per read.
const MAX_READ_BYTES: usize = 64 << 10;

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct LogArgs {
    /// The number of the entry, as `queue list` shows it
    #[arg(value_name = "ID")]
    pub entry: i64,

    /// Keep printing output until the entry ends
    #[arg(long, short)]
    pub follow: bool,

    /// The attempt, from 1 [default: the last one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub attempt: Option<u32>,
}

/// Prints an entry's output.
pub(super) fn run(app: &App, args: &LogArgs) -> Result<Status> {
    let queue = super::open_existing(app)?;
    let entry = queue.entry(args.entry)?;
    let attempt = args.attempt.unwrap_or(entry.attempt);
    if app.global.json {
        if args.follow {
            let what = "output that is followed has no JSON form";
            return Err(Failure::new(Exit::Usage, "usage", what).hint("leave out --follow"));
        }
        let bytes = read_all(&queue, args.entry, attempt)?;
        let output = Some(String::from_utf8_lossy(&bytes).into_owned());
        app.print_json(&QueueEntryDocument::for_entry(&queue, entry, Vec::new(), output)?)?;
        return Ok(0);
    }
    if args.follow {
        if attempt > entry.attempt && !entry.state.is_active() {
            open(&queue, args.entry, attempt)?;
        }
        return follow(&queue, args, attempt);
    }
    if attempt == 0 {
        app.print_note(&format!("entry {} has not started", args.entry));
        return Ok(0);
    }
    let mut log = open(&queue, args.entry, attempt)?;
    print_new(&mut log, &mut Vec::new(), true)?;
    Ok(0)
}

/// Prints the output of this attempt and of later ones, until the entry has ended.
fn follow(queue: &Queue, args: &LogArgs, from: u32) -> Result<Status> {
    let mut attempt = from;
    let mut log: Option<File> = None;
    let mut held = Vec::new();
    loop {
        // Read before the log, so that nothing is missed of an entry that has ended.
        let entry = queue.entry(args.entry)?;
        if attempt == 0 && entry.attempt > 0 {
            attempt = entry.attempt;
        }
        if log.is_none() && attempt > 0 {
            log = open(queue, args.entry, attempt).ok();
        }
        let is_over = !entry.state.is_active() || entry.attempt > attempt;
        if let Some(log) = &mut log {
            print_new(log, &mut held, is_over)?;
        }
        if !entry.state.is_active() && entry.attempt <= attempt {
            return Ok(0);
        }
        if entry.attempt > attempt && attempt > 0 && args.attempt.is_none() {
            (attempt, log) = (attempt + 1, None);
            continue;
        }
        if is_over && args.attempt.is_some() {
            return Ok(0);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Prints what is new in the log. Part of a character or a colour is held until the rest is there.
fn print_new(log: &mut File, held: &mut Vec<u8>, is_over: bool) -> Result<()> {
    let mut piece = vec![0; MAX_READ_BYTES];
    loop {
        let read = log.read(&mut piece).map_err(|e| {
            Failure::new(Exit::Disk, "unreadable", "the log cannot be read").cause(e)
        })?;
        held.extend_from_slice(&piece[..read]);
        let keep = if read == 0 && is_over { 0 } else { incomplete_tail_len(held) };
        let rest = held.split_off(held.len() - keep);
        if !held.is_empty() {
            write_program_output(held);
        }
        *held = rest;
        if read == 0 {
            return Ok(());
        }
    }
}

fn open(queue: &Queue, entry: i64, attempt: u32) -> Result<File> {
    let path = queue.log_path(entry, attempt);
    queue.open_log(entry, attempt).map_err(|e| {
        let what = format!("attempt {attempt} of entry {entry} has no log");
        Failure::new(Exit::Usage, "no_log", what).file(path.display()).cause(e)
    })
}

fn read_all(queue: &Queue, entry: i64, attempt: u32) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if attempt > 0 {
        open(queue, entry, attempt)?.read_to_end(&mut bytes).map_err(|e| {
            Failure::new(Exit::Disk, "unreadable", "the log cannot be read").cause(e)
        })?;
    }
    Ok(bytes)
}
