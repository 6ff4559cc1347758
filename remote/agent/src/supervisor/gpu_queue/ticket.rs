//! Tickets of the host's GPU queue: their names, their text, and which ones count. Any user can
//! create files in the folder, so invalid tickets are ignored.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::file::{create_private, one_line, open, read_text};
use super::valid_uuid;

/// Longest text of a ticket.
const MAX_TICKET_BYTES: usize = 16 << 10;

/// Most GPUs in one ticket.
const MAX_GPUS: usize = 128;

/// Most folder entries read. Tickets beyond them may be overtaken. GPUs that their jobs hold stay
/// locked by lock files of their own.
const MAX_FOLDER_ENTRIES: usize = 1 << 14;

/// Most ticket files opened in one look, and most held tickets that count. Those nearest before
/// ours come first.
const MAX_FILES_OPENED: usize = 4096;
const MAX_TICKETS_AHEAD: usize = 512;

/// A ticket with a larger gap to the one before it was not numbered by this program.
const MAX_NUMBER_GAP: u64 = 1 << 32;

/// Most numbers tried for a new ticket. The step doubles each time.
const NUMBER_TRIES: u32 = 16;

/// A position in the queue, given up when dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    path: PathBuf,
    pub(super) number: u64,
    pub(super) content: TicketContent,
    lock: File,
}

impl Ticket {
    /// Creates a ticket behind all others in `folder`. The caller holds the queue's lock.
    pub(super) fn create(
        folder: &Path,
        content: TicketContent,
    ) -> Result<Self, (PathBuf, io::Error)> {
        let mut number = next_number(&numbers(folder));
        let mut tries = 0..NUMBER_TRIES;
        let (path, lock) = loop {
            let path = ticket_path(folder, number);
            match (create_private(&path), tries.next()) {
                (Ok(lock), _) => break (path, lock),
                // In a crowded folder not all names were read.
                (Err(e), Some(step)) if e.kind() == io::ErrorKind::AlreadyExists => {
                    number = number.saturating_add(1 << step);
                }
                (Err(e), _) => return Err((path, e)),
            }
        };
        let ticket = Self { path, number, content, lock };
        // Others can open the file only once it is locked, and can never write to it.
        let locked = flock(&ticket.lock, FlockOperation::NonBlockingLockExclusive);
        locked
            .map_err(io::Error::from)
            .and_then(|()| ticket.write(&ticket.content))
            .and_then(|()| ticket.lock.set_permissions(fs::Permissions::from_mode(0o644)))
            .map_err(|e| (ticket.path.clone(), e))?;
        Ok(ticket)
    }

    /// Writes the ticket's text. The caller holds the queue's lock, as others read it then.
    pub(super) fn write(&self, content: &TicketContent) -> io::Result<()> {
        self.lock.set_len(0)?;
        self.lock.write_all_at(content.text().as_bytes(), 0)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // Tickets that nobody holds are ignored, so failing to remove one is harmless.
        let _ = fs::remove_file(&self.path);
    }
}

/// The text of a ticket: the acceptable GPUs, how many of them the job needs, and its title.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TicketContent {
    pub(super) gpus: Vec<String>,
    pub(super) count: usize,
    pub(super) job_title: String,
}

impl TicketContent {
    /// Parses `who JOB_TITLE`, `count N`, and then one UUID per line; the first two are optional.
    /// `None` if the text is no valid ticket.
    fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines().peekable();
        let mut field = |name: &str| {
            let value = lines.peek().and_then(|line| line.strip_prefix(name))?;
            lines.next();
            Some(value)
        };
        let job_title = one_line(field("who ").unwrap_or_default());
        let count = match field("count ") {
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse().ok()?,
            Some(_) => return None,
            None => 1,
        };
        let distinct: BTreeSet<&str> = lines.clone().collect();
        let gpus: Vec<String> = lines.map(str::to_owned).collect();
        let fits = distinct.len() == gpus.len() && gpus.len() <= MAX_GPUS;
        // A job that has locked its GPUs lists none.
        let possible = gpus.is_empty() || (1..=gpus.len()).contains(&count);
        let valid = fits && possible && distinct.iter().all(|uuid| valid_uuid(uuid));
        valid.then_some(Self { gpus, count, job_title })
    }

    fn text(&self) -> String {
        // A job's title must not become a line of its own.
        let job_title = one_line(&self.job_title);
        let gpus = &self.gpus[..self.gpus.len().min(MAX_GPUS)];
        format!("who {job_title}\ncount {}\n{}", self.count, gpus.join("\n"))
    }
}

/// Returns the content of held tickets before `number`, in order.
pub(super) fn ahead_of(folder: &Path, number: u64) -> Vec<TicketContent> {
    let mut numbers = numbers(folder);
    numbers.retain(|n| *n < number);
    let nearest = numbers.iter().rev().take(MAX_FILES_OPENED);
    let held = nearest.filter_map(|number| read_held(&ticket_path(folder, *number)));
    let mut ahead: Vec<TicketContent> = held.take(MAX_TICKETS_AHEAD).collect();
    ahead.reverse();
    ahead
}

/// Reads a ticket that somebody holds; `None` if it is invalid or nobody holds it, and then it is
/// removed.
fn read_held(path: &Path) -> Option<TicketContent> {
    let file = open(path, false).ok()?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => TicketContent::read(&read_text(&file, MAX_TICKET_BYTES)?),
        // The job was killed. Removing another user's file fails.
        _ => {
            let _ = fs::remove_file(path);
            None
        }
    }
}

/// Returns the numbers of the tickets in `folder`, in order.
fn numbers(folder: &Path) -> Vec<u64> {
    let entries = fs::read_dir(folder).into_iter().flatten().take(MAX_FOLDER_ENTRIES).flatten();
    let mut numbers: Vec<u64> =
        entries.filter_map(|entry| ticket_number(entry.file_name().to_str()?)).collect();
    numbers.sort_unstable();
    numbers
}

fn ticket_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(ticket_name(number))
}

fn ticket_name(number: u64) -> String {
    format!("ticket-{number:012}")
}

/// Parses the number in a ticket's name; other spellings are invalid.
fn ticket_number(name: &str) -> Option<u64> {
    let number = name.strip_prefix("ticket-")?.parse().ok()?;
    (ticket_name(number) == name).then_some(number)
}

/// Returns the number after the last of the sorted `numbers`. Numbers far ahead are ignored, so
/// that nobody can use up the numbers.
fn next_number(numbers: &[u64]) -> u64 {
    let mut last: u64 = 0;
    for number in numbers {
        if number.saturating_sub(last) > MAX_NUMBER_GAP {
            break;
        }
        last = *number;
    }
    last.saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(gpus: &[&str], count: usize, job_title: &str) -> TicketContent {
        TicketContent {
            gpus: gpus.iter().map(|u| (*u).to_owned()).collect(),
            count,
            job_title: job_title.into(),
        }
    }

    #[test]
    fn a_ticket_is_read_as_it_was_written_and_a_name_is_no_line_of_its_own() {
        let read = TicketContent::read(&content(&["B", "A"], 2, "a\ncount 9").text());
        assert_eq!(read, Some(content(&["B", "A"], 2, "acount 9")));
        // Older agents write tickets like this.
        assert_eq!(TicketContent::read("A\nB"), Some(content(&["A", "B"], 1, "")));
        assert_eq!(TicketContent::read("count 2\nA\nB"), Some(content(&["A", "B"], 2, "")));
        // The ticket of a job that has its GPUs.
        assert_eq!(TicketContent::read(""), Some(content(&[], 1, "")));
        assert_eq!(
            TicketContent::read(&content(&["A"], 1, &"w".repeat(9999)).text())
                .unwrap()
                .job_title
                .len(),
            200
        );
    }

    #[test]
    fn a_text_that_this_program_does_not_write_is_no_ticket() {
        for forged in [
            "who evil\ncount 18446744073709551615\nA",
            "count 99999999999999999999999\nA",
            "count 2\nA",
            "count 0\nA",
            "count +1\nA",
            "count -1\nA",
            "count \nA",
            "count 1\nwho evil\nA",
            "count 2\nA\nA",
            "count 1\n../../etc/passwd",
            "count 1\nA\n\nB",
            "count 1\nA\0",
        ] {
            assert_eq!(TicketContent::read(forged), None, "{forged:?}");
        }
        let many: Vec<String> = (0..=MAX_GPUS).map(|n| format!("GPU-{n}")).collect();
        assert_eq!(TicketContent::read(&many.join("\n")), None);
        assert!(TicketContent::read(&many[1..].join("\n")).is_some());
    }

    #[test]
    fn a_ticket_has_one_spelling() {
        assert_eq!(ticket_number("ticket-000000000007"), Some(7));
        assert_eq!(ticket_number("ticket-18446744073709551615"), Some(u64::MAX));
        for name in ["ticket-7", "ticket-+00000000007", "ticket-0000000000007", "ticket-", "A.lock"]
        {
            assert_eq!(ticket_number(name), None, "{name}");
        }
    }

    #[test]
    fn numbers_that_somebody_put_far_ahead_are_not_counted() {
        assert_eq!(next_number(&[]), 1);
        assert_eq!(next_number(&[3, 9]), 10);
        assert_eq!(next_number(&[3, u64::MAX]), 4);
        assert_eq!(next_number(&[999_999_999_999]), 1);
    }

    #[test]
    fn a_crowded_folder_is_not_read_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        for number in 1..=MAX_FOLDER_ENTRIES as u64 + 2000 {
            File::create(ticket_path(dir.path(), number)).unwrap();
        }
        assert_eq!(numbers(dir.path()).len(), MAX_FOLDER_ENTRIES);
        let ticket = Ticket::create(dir.path(), content(&["A"], 1, "me")).unwrap();
        assert!(ahead_of(dir.path(), ticket.number).is_empty());
    }
}
