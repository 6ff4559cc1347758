//! The queue for a host's GPUs, shared by all its users. It consists of files and flocks, without a
//! daemon.
//!
//! The lock folder holds `<uuid>.lock` (flocked by the job that has the GPU; its text names the
//! holder), `ticket-<number>` (flocked by a waiting job; its text lists the GPUs it accepts) and
//! `queue.lock` (flocked during each look at the queue). The kernel releases a flock when its
//! process ends, so a killed holder frees its GPU and a killed waiter leaves the queue. A job takes
//! a GPU only if no earlier ticket could use it, and takes all GPUs it needs at once, so that no
//! deadlock can occur.
//!
//! All users can write the folder, so any of them can block a GPU or the queue. But whatever files
//! they create, a look stays short, and files that are not valid tickets are ignored.

mod file;
mod ticket;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use file::{is_at, one_line, open, open_shared, read_holder};
pub(crate) use ticket::Ticket;
use ticket::{TicketContent, ahead_of};

/// Lock folders, best first. All users must choose the same one, so `$TMPDIR` is not considered.
const FOLDERS: [&str; 2] = ["/run/lock/rgpu", "/tmp/rgpu-locks"];

/// How often and after which pause to check again a folder that another process is just creating.
const FOLDER_TRIES: u32 = 20;
const FOLDER_RETRY_PAUSE: Duration = Duration::from_millis(10);

/// The file system type of NFS in `statfs`.
const NFS: u64 = 0x6969;

/// Why there is no queue. The job ends, because nothing runs on a GPU without the lock.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GpuQueueError {
    /// There is no usable folder for locks.
    #[error("no folder for GPU locks: {0}")]
    Folder(String),
    /// A file in the lock folder cannot be used.
    #[error("`{path}` cannot be used: {source}")]
    File { path: PathBuf, source: io::Error },
}

#[derive(Clone, Debug)]
pub(crate) struct GpuQueue {
    folder: PathBuf,
}

/// The result of a look at the queue.
#[derive(Debug)]
pub(crate) enum GpuQueueState {
    /// The GPUs are ours while their files are open: UUID and flocked file of each.
    Ours(Vec<(String, File)>),
    /// Another job is looking at the queue right now. Try again.
    Busy,
    /// Other jobs are first.
    Wait {
        /// Position in the queue; 1 is next.
        position: u32,
        /// Description of the holder of a suitable GPU.
        holder: String,
    },
}

/// The result of taking one GPU's lock.
enum LockAttempt {
    /// It is ours while this file is open.
    Ours(File),
    /// Another job has it; empty if the holder is unknown.
    HeldBy(String),
}

impl GpuQueue {
    /// Opens the queue in `folder`, or in the folder that all users of this host share.
    pub(crate) fn open(folder: Option<PathBuf>) -> Result<Self, GpuQueueError> {
        if let Some(folder) = folder {
            // The user's own folder, closed to others, is allowed.
            let meta = fs::symlink_metadata(&folder).ok().filter(fs::Metadata::is_dir);
            let is_own = meta.is_some_and(|meta| {
                meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 == 0
            });
            return if is_own { require_local(&folder) } else { prepare(&folder) }
                .map(|()| Self { folder });
        }
        Self::open_first(&FOLDERS.map(Path::new))
    }

    /// Opens the first existing folder, else the first that can be created. An existing folder that
    /// cannot be used is an error: skipping it would make a second queue.
    fn open_first(folders: &[&Path]) -> Result<Self, GpuQueueError> {
        if let Some(existing) = folders.iter().find(|f| fs::symlink_metadata(f).is_ok()) {
            return prepare(existing).map(|()| Self { folder: existing.to_path_buf() });
        }
        let mut last_error = GpuQueueError::Folder("none is named".into());
        for folder in folders {
            match prepare(folder) {
                Ok(()) => return Ok(Self { folder: folder.to_path_buf() }),
                Err(e) => last_error = e,
            }
        }
        Err(last_error)
    }

    /// Joins the end of the queue for any `count` of the GPUs in `wanted`; `None` if another job is
    /// looking at the queue.
    pub(crate) fn enter(
        &self,
        wanted: &[String],
        count: usize,
        job_title: &str,
    ) -> Result<Option<Ticket>, GpuQueueError> {
        let Some(_lock) = self.lock_queue()? else { return Ok(None) };
        let content =
            TicketContent { gpus: wanted.to_vec(), count, job_title: job_title.to_owned() };
        let created = Ticket::create(&self.folder, content);
        created.map(Some).map_err(|(path, source)| GpuQueueError::File { path, source })
    }

    /// Waits again in the same position, for any of the GPUs in `wanted`. Returns false if another
    /// job is looking at the queue.
    pub(crate) fn requeue(
        &self,
        ticket: &mut Ticket,
        wanted: &[String],
    ) -> Result<bool, GpuQueueError> {
        let Some(_lock) = self.lock_queue()? else { return Ok(false) };
        wanted.clone_into(&mut ticket.content.gpus);
        self.write(ticket, &ticket.content)?;
        Ok(true)
    }

    fn write(&self, ticket: &Ticket, content: &TicketContent) -> Result<(), GpuQueueError> {
        let failed = |source| GpuQueueError::File { path: ticket.path().to_owned(), source };
        ticket.write(content).map_err(failed)
    }

    /// Takes GPUs if enough are free that no earlier ticket could use. The ticket then keeps its
    /// position, but lists no GPUs until [`GpuQueue::requeue`].
    pub(crate) fn try_lock_gpus(&self, ticket: &Ticket) -> Result<GpuQueueState, GpuQueueError> {
        let Some(_lock) = self.lock_queue()? else { return Ok(GpuQueueState::Busy) };
        let content = &ticket.content;
        let ahead = ahead_of(&self.folder, ticket.number);
        let reserved = self.reserved(&ahead);
        let mut rivals = ahead.iter().filter(|a| a.gpus.iter().any(|u| content.gpus.contains(u)));
        let position = 1 + u32::try_from(rivals.clone().count()).unwrap_or(u32::MAX - 1);
        // A GPU's holder is more informative than another waiter.
        let mut holder = None;
        let mut unusable = Vec::new();
        let mut ours = Vec::new();
        for uuid in content.gpus.iter().filter(|u| !reserved.contains(u.as_str())) {
            match self.try_lock_gpu(uuid, &content.job_title) {
                Ok(LockAttempt::Ours(lock)) => {
                    ours.push((uuid.clone(), lock));
                    if ours.len() == content.count {
                        self.write(ticket, &TicketContent::default())?;
                        return Ok(GpuQueueState::Ours(ours));
                    }
                }
                Ok(LockAttempt::HeldBy(title)) => {
                    holder = holder.or(Some(title).filter(|w| !w.is_empty()))
                }
                Err(error) => unusable.push(error),
            }
        }
        if content.gpus.len() < content.count + unusable.len()
            && let Some(error) = unusable.into_iter().next()
        {
            return Err(error);
        }
        let last = || rivals.next_back().map(|rival| rival.job_title.clone()).unwrap_or_default();
        Ok(GpuQueueState::Wait { position, holder: holder.unwrap_or_else(last) })
    }

    /// Returns the GPUs that earlier tickets will take: the first free ones on each ticket's list.
    fn reserved<'w>(&self, ahead: &'w [TicketContent]) -> BTreeSet<&'w str> {
        let mut reserved = BTreeSet::new();
        let mut free = BTreeMap::new();
        for earlier in ahead {
            let mut missing = earlier.count;
            for uuid in earlier.gpus.iter().map(String::as_str) {
                if missing == 0 {
                    break;
                }
                let is_free = *free.entry(uuid).or_insert_with(|| self.is_free(uuid));
                if is_free && reserved.insert(uuid) {
                    missing -= 1;
                }
            }
        }
        reserved
    }

    fn is_free(&self, uuid: &str) -> bool {
        match open(&self.lock_path(uuid), true) {
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_ok(),
            Err(e) => e.kind() == io::ErrorKind::NotFound,
        }
    }

    /// Tries to lock one GPU.
    fn try_lock_gpu(&self, uuid: &str, job_title: &str) -> Result<LockAttempt, GpuQueueError> {
        let path = self.lock_path(uuid);
        let failed = |source: io::Error| GpuQueueError::File { path: path.clone(), source };
        let file = open_shared(&path).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_at(&file, &path) => {
                // The holder's name only informs users.
                let title = one_line(job_title);
                let _ = file.set_len(0).and_then(|()| file.write_all_at(title.as_bytes(), 0));
                Ok(LockAttempt::Ours(file))
            }
            // The previous owner has just removed the file.
            Ok(()) => Ok(LockAttempt::HeldBy(String::new())),
            Err(Errno::WOULDBLOCK) => Ok(LockAttempt::HeldBy(read_holder(&file))),
            Err(e) => Err(failed(e.into())),
        }
    }

    fn lock_path(&self, uuid: &str) -> PathBuf {
        self.folder.join(format!("{uuid}.lock"))
    }

    /// Locks the queue; `None` if another job holds that lock.
    fn lock_queue(&self) -> Result<Option<File>, GpuQueueError> {
        let path = self.queue_lock_path();
        let failed = |source: io::Error| GpuQueueError::File { path: path.clone(), source };
        let file = match open_shared(&path) {
            // The file's owner holds a lease on it.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(is_at(&file, &path).then_some(file)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(failed(e.into())),
        }
    }

    /// The file that is locked during a look at the queue.
    pub(crate) fn queue_lock_path(&self) -> PathBuf {
        self.folder.join("queue.lock")
    }
}

/// Returns whether a UUID can be part of a file name.
pub(crate) fn valid_uuid(uuid: &str) -> bool {
    (1..=100).contains(&uuid.len())
        && uuid.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

/// Creates the folder with mode 1777, or checks an existing one.
fn prepare(folder: &Path) -> Result<(), GpuQueueError> {
    let refuse = |why: String| Err(GpuQueueError::Folder(format!("`{}` {why}", folder.display())));
    match DirBuilder::new().mode(0o1777).create(folder) {
        Ok(()) => {
            // The umask has removed some of the mode bits.
            if let Err(e) = fs::set_permissions(folder, fs::Permissions::from_mode(0o1777)) {
                return refuse(format!("cannot be opened to all users: {e}"));
            }
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return refuse(format!("cannot be made: {e}")),
    }
    let mut tries = 0;
    loop {
        let meta = match fs::symlink_metadata(folder) {
            Ok(meta) => meta,
            Err(e) => return refuse(format!("cannot be looked at: {e}")),
        };
        if !meta.is_dir() {
            return refuse("is not a folder".into());
        }
        // Without the sticky bit, users could remove each other's locks.
        if meta.mode() & 0o1777 == 0o1777 {
            break;
        }
        tries += 1;
        if tries > FOLDER_TRIES {
            return refuse(format!("has the mode {:o} instead of 1777", meta.mode() & 0o7777));
        }
        // Its creator may be about to set the mode.
        std::thread::sleep(FOLDER_RETRY_PAUSE);
    }
    require_local(folder)
}

/// Refuses a folder on NFS.
fn require_local(folder: &Path) -> Result<(), GpuQueueError> {
    let refuse = |why: String| Err(GpuQueueError::Folder(format!("`{}` {why}", folder.display())));
    match rustix::fs::statfs(folder) {
        Ok(fs) if fs.f_type as u64 == NFS => refuse("is on NFS, where locks are unreliable".into()),
        Ok(_) => Ok(()),
        Err(e) => refuse(format!("cannot be looked at: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> (tempfile::TempDir, GpuQueue) {
        let dir = tempfile::tempdir().unwrap();
        let queue = GpuQueue::open(Some(dir.path().join("locks"))).unwrap();
        (dir, queue)
    }

    fn gpus(uuids: &[&str]) -> Vec<String> {
        uuids.iter().map(|u| (*u).to_owned()).collect()
    }

    fn position(look: GpuQueueState) -> (u32, String) {
        match look {
            GpuQueueState::Wait { position, holder } => (position, holder),
            other => panic!("got {other:?}"),
        }
    }

    fn uuid(look: &GpuQueueState) -> &str {
        match look {
            GpuQueueState::Ours(held) => &held[0].0,
            other => panic!("got {other:?}"),
        }
    }

    #[test]
    fn first_come_is_first_served_and_a_later_one_does_not_overtake() {
        let (_dir, queue) = queue();
        let first = queue.enter(&gpus(&["A", "B"]), 1, "one").unwrap().unwrap();
        let second = queue.enter(&gpus(&["A"]), 1, "two").unwrap().unwrap();
        let third = queue.enter(&gpus(&["B"]), 1, "three").unwrap().unwrap();
        // A is free, but the first job could take it.
        assert_eq!(position(queue.try_lock_gpus(&second).unwrap()).0, 2);
        // The first job takes only one, so the third gets B.
        let b = queue.try_lock_gpus(&third).unwrap();
        assert_eq!(uuid(&b), "B");
        drop(third);
        let a = queue.try_lock_gpus(&first).unwrap();
        assert_eq!(uuid(&a), "A");
        drop(first);
        assert_eq!(position(queue.try_lock_gpus(&second).unwrap()), (1, "one".into()));
        drop(a);
        assert_eq!(uuid(&queue.try_lock_gpus(&second).unwrap()), "A");
    }

    #[test]
    fn who_finds_a_gpu_unusable_keeps_its_place() {
        let (_dir, queue) = queue();
        let mut first = queue.enter(&gpus(&["A", "B"]), 1, "one").unwrap().unwrap();
        let second = queue.enter(&gpus(&["A", "B"]), 1, "two").unwrap().unwrap();
        let unusable = queue.try_lock_gpus(&first).unwrap();
        assert_eq!(uuid(&unusable), "A");
        // While the first job checks its GPU, nothing is reserved for it.
        let b = queue.try_lock_gpus(&second).unwrap();
        assert_eq!(uuid(&b), "B");
        drop(unusable);
        assert!(queue.requeue(&mut first, &gpus(&["B"])).unwrap());
        let third = queue.enter(&gpus(&["B"]), 1, "three").unwrap().unwrap();
        drop((second, b));
        assert_eq!(position(queue.try_lock_gpus(&third).unwrap()), (2, "one".into()));
        assert_eq!(uuid(&queue.try_lock_gpus(&first).unwrap()), "B");
    }

    #[test]
    fn several_gpus_are_taken_at_once_or_not_at_all() {
        let (_dir, queue) = queue();
        let one = queue.enter(&gpus(&["A", "B"]), 1, "one").unwrap().unwrap();
        let held = queue.try_lock_gpus(&one).unwrap();
        let two = queue.enter(&gpus(&["A", "B"]), 2, "two").unwrap().unwrap();
        // A job that has its GPUs is ahead of nobody.
        assert_eq!(position(queue.try_lock_gpus(&two).unwrap()), (1, "one".into()));
        drop(one);
        // B is free, but the second job needs two. B stays reserved for it.
        assert_eq!(position(queue.try_lock_gpus(&two).unwrap()), (1, "one".into()));
        let late = queue.enter(&gpus(&["B"]), 1, "late").unwrap().unwrap();
        assert_eq!(position(queue.try_lock_gpus(&late).unwrap()).0, 2);
        drop(held);
        let GpuQueueState::Ours(both) = queue.try_lock_gpus(&two).unwrap() else { panic!() };
        assert_eq!(both.iter().map(|(uuid, _)| uuid.as_str()).collect::<Vec<_>>(), ["A", "B"]);
    }

    #[test]
    fn a_ticket_without_a_living_holder_is_passed_over() {
        let (dir, queue) = queue();
        let stale = dir.path().join("locks/ticket-000000000001");
        fs::write(&stale, "A").unwrap();
        let mine = queue.enter(&gpus(&["A"]), 1, "me").unwrap().unwrap();
        assert_eq!(mine.number, 2);
        assert_eq!(uuid(&queue.try_lock_gpus(&mine).unwrap()), "A");
        assert!(!stale.exists());
    }

    #[test]
    fn a_lock_folder_without_the_sticky_bit_or_behind_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(GpuQueue::open(Some(open.clone())).is_err());
        fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(GpuQueue::open(Some(open.clone())).is_ok());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&open, &link).unwrap();
        assert!(GpuQueue::open(Some(link)).is_err());
    }

    #[test]
    fn all_users_use_the_folder_that_is_there_and_none_passes_a_bad_one_over() {
        let dir = tempfile::tempdir().unwrap();
        let (run, temp) = (dir.path().join("run/rgpu"), dir.path().join("temp"));
        let open_first = || GpuQueue::open_first(&[&run, &temp]).map(|queue| queue.folder);
        // A user who cannot write to the first folder's parent has created the second.
        assert_eq!(open_first().unwrap(), temp);
        fs::create_dir(dir.path().join("run")).unwrap();
        assert_eq!(open_first().unwrap(), temp, "the others are there already");
        fs::create_dir(&run).unwrap();
        fs::set_permissions(&run, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(open_first().is_err());
        fs::set_permissions(&run, fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(open_first().unwrap(), run);
    }

    #[test]
    fn a_lock_with_a_second_name_or_that_is_no_file_is_an_error() {
        let (dir, queue) = queue();
        let secret = dir.path().join("secret");
        fs::write(&secret, "kept").unwrap();
        let mine = queue.enter(&gpus(&["A"]), 1, "me").unwrap().unwrap();
        fs::hard_link(&secret, dir.path().join("locks/A.lock")).unwrap();
        assert!(queue.try_lock_gpus(&mine).is_err());
        assert_eq!(fs::read_to_string(&secret).unwrap(), "kept");
        fs::remove_file(dir.path().join("locks/A.lock")).unwrap();
        fs::create_dir(dir.path().join("locks/A.lock")).unwrap();
        assert!(queue.try_lock_gpus(&mine).is_err());
    }

    /// Creates another job's file, locked while the result is open.
    fn locked(path: &Path, text: &str) -> File {
        fs::write(path, text).unwrap();
        let file = File::open(path).unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        file
    }

    #[test]
    fn forged_tickets_are_passed_over_whatever_they_hold() {
        let (dir, queue) = queue();
        let at = |name: &str| dir.path().join("locks").join(name);
        let mut held: Vec<File> = [
            "count 18446744073709551615\nA",
            "count 3\nA\nB",
            "count 1\n../A",
            format!("who {}\nA", "x".repeat(1 << 20)).as_str(),
        ]
        .iter()
        .zip(1..)
        .map(|(text, n)| locked(&at(&format!("ticket-{n:012}")), text))
        .collect();
        // A sparse file of 1 TB, a FIFO, a link, a folder, a second name.
        held.push(locked(&at("ticket-000000000005"), "A"));
        fs::OpenOptions::new()
            .write(true)
            .open(at("ticket-000000000005"))
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, at("ticket-000000000006"), fifo, mode, 0).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("ticket-000000000007")).unwrap();
        fs::create_dir(at("ticket-000000000008")).unwrap();
        held.push(locked(&dir.path().join("other"), "A"));
        fs::hard_link(dir.path().join("other"), at("ticket-000000000009")).unwrap();
        held.push(locked(&at("ticket-18446744073709551615"), "A"));
        held.push(locked(&at("ticket-3"), "A"));

        let mine = queue.enter(&gpus(&["A"]), 1, "me").unwrap().unwrap();
        assert_eq!(mine.number, 10);
        let a = queue.try_lock_gpus(&mine).unwrap();
        assert_eq!(uuid(&a), "A");
        let next = queue.enter(&gpus(&["A"]), 1, "next").unwrap().unwrap();
        assert_eq!(
            (next.number, position(queue.try_lock_gpus(&next).unwrap())),
            (11, (1, "me".into()))
        );
    }

    #[test]
    fn a_ticket_is_written_by_its_owner_alone_and_locked_before_others_can_open_it() {
        let (_dir, queue) = queue();
        let mine = queue.enter(&gpus(&["A"]), 1, "me").unwrap().unwrap();
        assert_eq!(fs::metadata(mine.path()).unwrap().mode() & 0o777, 0o644);
    }

    #[test]
    fn a_gpu_whose_lock_is_unusable_is_passed_over_where_others_do() {
        let (dir, queue) = queue();
        fs::create_dir(dir.path().join("locks/A.lock")).unwrap();
        let one = queue.enter(&gpus(&["A", "B"]), 1, "one").unwrap().unwrap();
        let b = queue.try_lock_gpus(&one).unwrap();
        assert_eq!(uuid(&b), "B");
        // B can still become free.
        let next = queue.enter(&gpus(&["A", "B"]), 1, "next").unwrap().unwrap();
        assert_eq!(position(queue.try_lock_gpus(&next).unwrap()), (1, "one".into()));
        let both = queue.enter(&gpus(&["A", "B"]), 2, "both").unwrap().unwrap();
        assert!(queue.try_lock_gpus(&both).unwrap_err().to_string().contains("A.lock"));
    }

    #[test]
    fn what_a_holder_says_of_itself_is_one_short_line() {
        let (dir, queue) = queue();
        let _held = locked(&dir.path().join("locks/A.lock"), &"e\nv\x1b[2Jil ".repeat(10_000));
        let mine = queue.enter(&gpus(&["A"]), 1, "me").unwrap().unwrap();
        let (_, holder) = position(queue.try_lock_gpus(&mine).unwrap());
        assert!(holder.starts_with("ev[2Jil ev") && holder.len() == 200, "{holder}");
    }

    #[test]
    fn who_cannot_look_is_not_held_up() {
        let (dir, queue) = queue();
        let mut mine = queue.enter(&gpus(&["A"]), 1, "me").unwrap().unwrap();
        let _lock = locked(&dir.path().join("locks/queue.lock"), "");
        assert!(matches!(queue.try_lock_gpus(&mine).unwrap(), GpuQueueState::Busy));
        assert!(!queue.requeue(&mut mine, &gpus(&["A"])).unwrap());
        assert!(queue.enter(&gpus(&["A"]), 1, "you").unwrap().is_none());
    }

    #[test]
    fn who_waits_behind_a_reserved_gpu_is_told_for_whom() {
        let (_dir, queue) = queue();
        let holder = queue.enter(&gpus(&["B"]), 1, "holder").unwrap().unwrap();
        let _held = queue.try_lock_gpus(&holder).unwrap();
        drop(holder);
        let _both = queue.enter(&gpus(&["A", "B"]), 2, "both").unwrap().unwrap();
        let late = queue.enter(&gpus(&["A"]), 1, "late").unwrap().unwrap();
        assert_eq!(position(queue.try_lock_gpus(&late).unwrap()), (2, "both".into()));
    }
}
