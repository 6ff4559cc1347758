//! The queue for GPUs of a host, shared by all its users: files and flocks, no daemon.
//!
//! In the lock folder lie `<uuid>.lock` (flocked by the job that has the GPU; its text says who),
//! `ticket-<number>` (flocked by the job that waits; its text lists the GPUs it would take) and
//! `queue.lock` (flocked for the moment of a look). A flock goes with its process, so a killed
//! holder frees its GPU and a killed waiter leaves the queue. A job takes a GPU only if no earlier
//! ticket could use it, and all that it wants at once or none: nobody waits in a circle.
//!
//! The folder is open to all users, so any of them can keep a GPU or the first place for as long as
//! they like. Whatever files they put there, a look stays short and what cannot be a ticket is
//! passed over.

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
use ticket::{Wish, ahead_of};

/// Where all users of a host look for the locks, best first. What decides is the host, not
/// `$TMPDIR`: all must choose alike.
const FOLDERS: [&str; 2] = ["/run/lock/rgpu", "/tmp/rgpu-locks"];

/// How often a folder that somebody is just making is looked at again, and how long between.
const FOLDER_TRIES: u32 = 20;
const FOLDER_RETRY_PAUSE: Duration = Duration::from_millis(10);

/// The magic number of NFS in `statfs`.
const NFS: u64 = 0x6969;

/// Why there is no queue. The job ends: without the lock nothing runs on a GPU.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QueueError {
    /// No folder for locks.
    #[error("no folder for GPU locks: {0}")]
    Folder(String),
    /// A file of it.
    #[error("`{path}` cannot be used: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The lock folder.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    folder: PathBuf,
}

/// What a look at the queue gave.
#[derive(Debug)]
pub(crate) enum QueueState {
    /// The GPUs are ours for as long as their files are open: UUID and flocked file of each.
    Ours(Vec<(String, File)>),
    /// Somebody else looks right now; the next look will do.
    Busy,
    /// Others are first.
    Wait {
        /// 1 is next.
        place: u32,
        /// Who holds a GPU that would do.
        holder: String,
    },
}

/// What became of taking one GPU's lock.
enum Take {
    /// It is ours while this file is open.
    Ours(File),
    /// Somebody else has it; empty where the holder cannot be told.
    HeldBy(String),
}

impl Queue {
    /// The queue in `named`, or else in the folder that all users of this host agree on.
    ///
    /// # Errors
    /// When no folder can be used safely.
    pub(crate) fn open(named: Option<PathBuf>) -> Result<Self, QueueError> {
        if let Some(folder) = named {
            // One of the user's own, closed to others, is what they wanted.
            let meta = fs::symlink_metadata(&folder).ok().filter(fs::Metadata::is_dir);
            let mine = meta.is_some_and(|meta| {
                meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 == 0
            });
            return if mine { local(&folder) } else { prepare(&folder) }.map(|()| Self { folder });
        }
        Self::agreed(&FOLDERS.map(Path::new))
    }

    /// The first of `folders` that is there, else the first that can be made. One that is there and
    /// cannot be used is an error: to pass it over would be a second queue beside the others'.
    fn agreed(folders: &[&Path]) -> Result<Self, QueueError> {
        if let Some(there) = folders.iter().find(|f| fs::symlink_metadata(f).is_ok()) {
            return prepare(there).map(|()| Self { folder: there.to_path_buf() });
        }
        let mut refused = QueueError::Folder("none is named".into());
        for folder in folders {
            match prepare(folder) {
                Ok(()) => return Ok(Self { folder: folder.to_path_buf() }),
                Err(e) => refused = e,
            }
        }
        Err(refused)
    }

    /// Takes a place at the end of the queue for any `count` of the GPUs in `wanted`.
    pub(crate) fn enter(
        &self,
        wanted: &[String],
        count: usize,
        who: &str,
    ) -> Result<Option<Ticket>, QueueError> {
        let Some(_guard) = self.guard()? else { return Ok(None) };
        let wish = Wish { wanted: wanted.to_vec(), count, who: who.to_owned() };
        let created = Ticket::create(&self.folder, wish);
        created.map(Some).map_err(|(path, source)| QueueError::File { path, source })
    }

    /// Goes on waiting at the same place, for any of the GPUs in `wanted`; false: somebody else is
    /// looking right now.
    pub(crate) fn again(&self, ticket: &mut Ticket, wanted: &[String]) -> Result<bool, QueueError> {
        let Some(_guard) = self.guard()? else { return Ok(false) };
        wanted.clone_into(&mut ticket.wish.wanted);
        self.write(ticket, &ticket.wish)?;
        Ok(true)
    }

    fn write(&self, ticket: &Ticket, wish: &Wish) -> Result<(), QueueError> {
        let failed = |source| QueueError::File { path: ticket.path().to_owned(), source };
        ticket.write(wish).map_err(failed)
    }

    /// Takes GPUs if enough are free that no earlier ticket could use. The ticket then keeps its
    /// place, but wants nothing any more, until [`Queue::again`].
    ///
    /// # Errors
    /// Too few of the wanted GPUs have a usable lock file.
    pub(crate) fn look(&self, ticket: &Ticket) -> Result<QueueState, QueueError> {
        let Some(_guard) = self.guard()? else { return Ok(QueueState::Busy) };
        let wish = &ticket.wish;
        let ahead = ahead_of(&self.folder, ticket.number);
        let reserved = self.reserved(&ahead);
        let mut rivals = ahead.iter().filter(|a| a.wanted.iter().any(|u| wish.wanted.contains(u)));
        let place = 1 + u32::try_from(rivals.clone().count()).unwrap_or(u32::MAX - 1);
        // Who has the GPU says more than who waits for it.
        let mut holder = None;
        let mut unusable = Vec::new();
        let mut ours = Vec::new();
        for uuid in wish.wanted.iter().filter(|u| !reserved.contains(u.as_str())) {
            match self.take(uuid, &wish.who) {
                Ok(Take::Ours(lock)) => {
                    ours.push((uuid.clone(), lock));
                    if ours.len() == wish.count {
                        self.write(ticket, &Wish::default())?;
                        return Ok(QueueState::Ours(ours));
                    }
                }
                Ok(Take::HeldBy(who)) => holder = holder.or(Some(who).filter(|w| !w.is_empty())),
                Err(error) => unusable.push(error),
            }
        }
        if wish.wanted.len() < wish.count + unusable.len()
            && let Some(error) = unusable.into_iter().next()
        {
            return Err(error);
        }
        let last = || rivals.next_back().map(|rival| rival.who.clone()).unwrap_or_default();
        Ok(QueueState::Wait { place, holder: holder.unwrap_or_else(last) })
    }

    /// The GPUs that earlier tickets will take: of each the first free ones of its own. It waits for
    /// the rest.
    fn reserved<'w>(&self, ahead: &'w [Wish]) -> BTreeSet<&'w str> {
        let mut reserved = BTreeSet::new();
        let mut known = BTreeMap::new();
        for earlier in ahead {
            let mut missing = earlier.count;
            for uuid in earlier.wanted.iter().map(String::as_str) {
                if missing == 0 {
                    break;
                }
                let is_free = *known.entry(uuid).or_insert_with(|| self.is_free(uuid));
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

    /// Takes the lock of one GPU.
    fn take(&self, uuid: &str, who: &str) -> Result<Take, QueueError> {
        let path = self.lock_path(uuid);
        let failed = |source: io::Error| QueueError::File { path: path.clone(), source };
        let file = open_shared(&path).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_at(&file, &path) => {
                // Who has it is for the eyes only.
                let who = one_line(who);
                let _ = file.set_len(0).and_then(|()| file.write_all_at(who.as_bytes(), 0));
                Ok(Take::Ours(file))
            }
            // Its owner has just removed it.
            Ok(()) => Ok(Take::HeldBy(String::new())),
            Err(Errno::WOULDBLOCK) => Ok(Take::HeldBy(read_holder(&file))),
            Err(e) => Err(failed(e.into())),
        }
    }

    fn lock_path(&self, uuid: &str) -> PathBuf {
        self.folder.join(format!("{uuid}.lock"))
    }

    /// The right to look, unless somebody else is looking right now.
    fn guard(&self) -> Result<Option<File>, QueueError> {
        let path = self.guard_path();
        let failed = |source: io::Error| QueueError::File { path: path.clone(), source };
        let file = match open_shared(&path) {
            // Its owner has a lease on it.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(is_at(&file, &path).then_some(file)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(failed(e.into())),
        }
    }

    /// The file that is locked for the moment of a look.
    pub(crate) fn guard_path(&self) -> PathBuf {
        self.folder.join("queue.lock")
    }
}

/// Whether a UUID can be part of a file's name.
pub(crate) fn valid_uuid(uuid: &str) -> bool {
    (1..=100).contains(&uuid.len())
        && uuid.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

/// Makes the folder with mode 1777, or checks one that somebody made.
fn prepare(folder: &Path) -> Result<(), QueueError> {
    let refuse = |why: String| Err(QueueError::Folder(format!("`{}` {why}", folder.display())));
    match DirBuilder::new().mode(0o1777).create(folder) {
        Ok(()) => {
            // The umask has taken some of the mode away.
            if let Err(e) = fs::set_permissions(folder, fs::Permissions::from_mode(0o1777)) {
                return refuse(format!("cannot be opened to all users: {e}"));
            }
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return refuse(format!("cannot be made: {e}")),
    }
    let mut looks = 0;
    loop {
        let meta = match fs::symlink_metadata(folder) {
            Ok(meta) => meta,
            Err(e) => return refuse(format!("cannot be looked at: {e}")),
        };
        if !meta.is_dir() {
            return refuse("is no folder".into());
        }
        // Without the sticky bit anybody could remove the lock of somebody else.
        if meta.mode() & 0o1777 == 0o1777 {
            break;
        }
        looks += 1;
        if looks > FOLDER_TRIES {
            return refuse(format!("has the mode {:o} in the place of 1777", meta.mode() & 0o7777));
        }
        // Between somebody's making it and opening it to all.
        std::thread::sleep(FOLDER_RETRY_PAUSE);
    }
    local(folder)
}

/// Refuses a folder that is not on this host.
fn local(folder: &Path) -> Result<(), QueueError> {
    let refuse = |why: String| Err(QueueError::Folder(format!("`{}` {why}", folder.display())));
    match rustix::fs::statfs(folder) {
        Ok(fs) if fs.f_type as u64 == NFS => refuse("is on NFS, where locks may lie".into()),
        Ok(_) => Ok(()),
        Err(e) => refuse(format!("cannot be looked at: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> (tempfile::TempDir, Queue) {
        let dir = tempfile::tempdir().unwrap();
        let queue = Queue::open(Some(dir.path().join("locks"))).unwrap();
        (dir, queue)
    }

    fn wanted(uuids: &[&str]) -> Vec<String> {
        uuids.iter().map(|u| (*u).to_owned()).collect()
    }

    fn place(look: QueueState) -> (u32, String) {
        match look {
            QueueState::Wait { place, holder } => (place, holder),
            other => panic!("got {other:?}"),
        }
    }

    fn uuid(look: &QueueState) -> &str {
        match look {
            QueueState::Ours(held) => &held[0].0,
            other => panic!("got {other:?}"),
        }
    }

    #[test]
    fn first_come_is_first_served_and_a_later_one_does_not_overtake() {
        let (_dir, queue) = queue();
        let first = queue.enter(&wanted(&["A", "B"]), 1, "one").unwrap().unwrap();
        let second = queue.enter(&wanted(&["A"]), 1, "two").unwrap().unwrap();
        let third = queue.enter(&wanted(&["B"]), 1, "three").unwrap().unwrap();
        // A is free, but the first could take it.
        assert_eq!(place(queue.look(&second).unwrap()).0, 2);
        // The first can take one only, so B is the third's.
        let b = queue.look(&third).unwrap();
        assert_eq!(uuid(&b), "B");
        drop(third);
        let a = queue.look(&first).unwrap();
        assert_eq!(uuid(&a), "A");
        drop(first);
        assert_eq!(place(queue.look(&second).unwrap()), (1, "one".into()));
        drop(a);
        assert_eq!(uuid(&queue.look(&second).unwrap()), "A");
    }

    #[test]
    fn who_finds_a_gpu_unusable_keeps_its_place() {
        let (_dir, queue) = queue();
        let mut first = queue.enter(&wanted(&["A", "B"]), 1, "one").unwrap().unwrap();
        let second = queue.enter(&wanted(&["A", "B"]), 1, "two").unwrap().unwrap();
        let odd = queue.look(&first).unwrap();
        assert_eq!(uuid(&odd), "A");
        // While the first looks at its GPU nothing is reserved for it.
        let b = queue.look(&second).unwrap();
        assert_eq!(uuid(&b), "B");
        drop(odd);
        assert!(queue.again(&mut first, &wanted(&["B"])).unwrap());
        let third = queue.enter(&wanted(&["B"]), 1, "three").unwrap().unwrap();
        drop((second, b));
        assert_eq!(place(queue.look(&third).unwrap()), (2, "one".into()));
        assert_eq!(uuid(&queue.look(&first).unwrap()), "B");
    }

    #[test]
    fn several_gpus_are_taken_at_once_or_not_at_all() {
        let (_dir, queue) = queue();
        let one = queue.enter(&wanted(&["A", "B"]), 1, "one").unwrap().unwrap();
        let held = queue.look(&one).unwrap();
        let two = queue.enter(&wanted(&["A", "B"]), 2, "two").unwrap().unwrap();
        // Who has what it wanted is no longer before anybody.
        assert_eq!(place(queue.look(&two).unwrap()), (1, "one".into()));
        drop(one);
        // B is free, but one is not enough; and it is kept for the one who waits for two.
        assert_eq!(place(queue.look(&two).unwrap()), (1, "one".into()));
        let late = queue.enter(&wanted(&["B"]), 1, "late").unwrap().unwrap();
        assert_eq!(place(queue.look(&late).unwrap()).0, 2);
        drop(held);
        let QueueState::Ours(both) = queue.look(&two).unwrap() else { panic!() };
        assert_eq!(both.iter().map(|(uuid, _)| uuid.as_str()).collect::<Vec<_>>(), ["A", "B"]);
    }

    #[test]
    fn a_ticket_without_a_living_holder_is_passed_over() {
        let (dir, queue) = queue();
        let stale = dir.path().join("locks/ticket-000000000001");
        fs::write(&stale, "A").unwrap();
        let mine = queue.enter(&wanted(&["A"]), 1, "me").unwrap().unwrap();
        assert_eq!(mine.number, 2);
        assert_eq!(uuid(&queue.look(&mine).unwrap()), "A");
        assert!(!stale.exists());
    }

    #[test]
    fn a_lock_folder_without_the_sticky_bit_or_behind_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Queue::open(Some(open.clone())).is_err());
        fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(Queue::open(Some(open.clone())).is_ok());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&open, &link).unwrap();
        assert!(Queue::open(Some(link)).is_err());
    }

    #[test]
    fn all_users_use_the_folder_that_is_there_and_none_passes_a_bad_one_over() {
        let dir = tempfile::tempdir().unwrap();
        let (run, temp) = (dir.path().join("run/rgpu"), dir.path().join("temp"));
        let agreed = || Queue::agreed(&[&run, &temp]).map(|queue| queue.folder);
        // A user who may not write the first folder's parent has made the second.
        assert_eq!(agreed().unwrap(), temp);
        fs::create_dir(dir.path().join("run")).unwrap();
        assert_eq!(agreed().unwrap(), temp, "the others are there already");
        fs::create_dir(&run).unwrap();
        fs::set_permissions(&run, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(agreed().is_err());
        fs::set_permissions(&run, fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(agreed().unwrap(), run);
    }

    #[test]
    fn a_lock_with_a_second_name_or_that_is_no_file_is_an_error() {
        let (dir, queue) = queue();
        let secret = dir.path().join("secret");
        fs::write(&secret, "kept").unwrap();
        let mine = queue.enter(&wanted(&["A"]), 1, "me").unwrap().unwrap();
        fs::hard_link(&secret, dir.path().join("locks/A.lock")).unwrap();
        assert!(queue.look(&mine).is_err());
        assert_eq!(fs::read_to_string(&secret).unwrap(), "kept");
        fs::remove_file(dir.path().join("locks/A.lock")).unwrap();
        fs::create_dir(dir.path().join("locks/A.lock")).unwrap();
        assert!(queue.look(&mine).is_err());
    }

    /// A file of another job, locked for as long as it is kept open.
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
        // 1 TB of nothing, a FIFO, a link, a folder, a second name.
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

        let mine = queue.enter(&wanted(&["A"]), 1, "me").unwrap().unwrap();
        assert_eq!(mine.number, 10);
        let a = queue.look(&mine).unwrap();
        assert_eq!(uuid(&a), "A");
        let next = queue.enter(&wanted(&["A"]), 1, "next").unwrap().unwrap();
        assert_eq!((next.number, place(queue.look(&next).unwrap())), (11, (1, "me".into())));
    }

    #[test]
    fn a_ticket_is_written_by_its_owner_alone_and_locked_before_others_can_open_it() {
        let (_dir, queue) = queue();
        let mine = queue.enter(&wanted(&["A"]), 1, "me").unwrap().unwrap();
        assert_eq!(fs::metadata(mine.path()).unwrap().mode() & 0o777, 0o644);
    }

    #[test]
    fn a_gpu_whose_lock_is_unusable_is_passed_over_where_others_do() {
        let (dir, queue) = queue();
        fs::create_dir(dir.path().join("locks/A.lock")).unwrap();
        let one = queue.enter(&wanted(&["A", "B"]), 1, "one").unwrap().unwrap();
        let b = queue.look(&one).unwrap();
        assert_eq!(uuid(&b), "B");
        // B can still become free.
        let next = queue.enter(&wanted(&["A", "B"]), 1, "next").unwrap().unwrap();
        assert_eq!(place(queue.look(&next).unwrap()), (1, "one".into()));
        let both = queue.enter(&wanted(&["A", "B"]), 2, "both").unwrap().unwrap();
        assert!(queue.look(&both).unwrap_err().to_string().contains("A.lock"));
    }

    #[test]
    fn what_a_holder_says_of_itself_is_one_short_line() {
        let (dir, queue) = queue();
        let _held = locked(&dir.path().join("locks/A.lock"), &"e\nv\x1b[2Jil ".repeat(10_000));
        let mine = queue.enter(&wanted(&["A"]), 1, "me").unwrap().unwrap();
        let (_, holder) = place(queue.look(&mine).unwrap());
        assert!(holder.starts_with("ev[2Jil ev") && holder.len() == 200, "{holder}");
    }

    #[test]
    fn who_cannot_look_is_not_held_up() {
        let (dir, queue) = queue();
        let mut mine = queue.enter(&wanted(&["A"]), 1, "me").unwrap().unwrap();
        let _guard = locked(&dir.path().join("locks/queue.lock"), "");
        assert!(matches!(queue.look(&mine).unwrap(), QueueState::Busy));
        assert!(!queue.again(&mut mine, &wanted(&["A"])).unwrap());
        assert!(queue.enter(&wanted(&["A"]), 1, "you").unwrap().is_none());
    }

    #[test]
    fn who_waits_behind_a_reserved_gpu_is_told_for_whom() {
        let (_dir, queue) = queue();
        let holder = queue.enter(&wanted(&["B"]), 1, "holder").unwrap().unwrap();
        let _held = queue.look(&holder).unwrap();
        drop(holder);
        let _both = queue.enter(&wanted(&["A", "B"]), 2, "both").unwrap().unwrap();
        let late = queue.enter(&wanted(&["A"]), 1, "late").unwrap().unwrap();
        assert_eq!(place(queue.look(&late).unwrap()), (2, "both".into()));
    }
}
