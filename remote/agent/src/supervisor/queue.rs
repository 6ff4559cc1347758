//! The queue for GPUs of a host, shared by all its users: files and flocks, no daemon.
//!
//! In the lock folder lie `<uuid>.lock` (flocked by the job that has the GPU; its text says who),
//! `ticket-<number>` (flocked by the job that waits; its text lists the GPUs it would take) and
//! `queue.lock` (flocked for the moment of a look). A flock goes with its process, so a killed
//! holder frees its GPU and a killed waiter leaves the queue. A job takes a GPU only if no earlier
//! ticket could use it, and all that it wants at once or none: nobody waits in a circle.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// Where all users of a host look for the locks, best first. What decides is the host, not
/// `$TMPDIR`: all must choose alike.
const FOLDERS: [&str; 2] = ["/run/lock/rgpu", "/tmp/rgpu-locks"];

/// How often a folder that somebody is just making is looked at again, and how long between.
const LOOKS: u32 = 20;
const BETWEEN: Duration = Duration::from_millis(10);

/// Tickets and locks are small; more text than this is not ours.
const MOST_TEXT: u64 = 64 << 10;

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

/// A place in the queue; left when dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    path: PathBuf,
    number: u64,
    wish: Wish,
    lock: File,
}

impl Ticket {
    /// Writes what it wants. Only while looking: others read it then.
    fn write(&self, text: &str) -> Result<(), QueueError> {
        let written =
            self.lock.set_len(0).and_then(|()| self.lock.write_all_at(text.as_bytes(), 0));
        written.map_err(|source| QueueError::File { path: self.path.clone(), source })
    }
}

/// What a living ticket wants: the GPUs that would do, and how many of them.
#[derive(Debug, PartialEq, Eq)]
struct Wish {
    wanted: Vec<String>,
    count: usize,
    who: String,
}

impl Wish {
    /// `who NAME`, `count 2`, and then a UUID a line; what is left out is nobody, and one.
    fn read(text: &str) -> Self {
        let mut wish = Self { wanted: Vec::new(), count: 1, who: String::new() };
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("who", who)) => who.clone_into(&mut wish.who),
                Some(("count", count)) => wish.count = count.parse().unwrap_or(1),
                _ => wish.wanted.push(line.to_owned()),
            }
        }
        wish
    }

    fn text(&self) -> String {
        // What a user calls a run must not become a line of its own.
        let who: String = self.who.chars().filter(|c| !c.is_control()).collect();
        format!("who {who}\ncount {}\n{}", self.count, self.wanted.join("\n"))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // A ticket that nobody holds is passed over; removing it is tidiness.
        let _ = fs::remove_file(&self.path);
    }
}

/// What a look at the queue gave.
#[derive(Debug)]
pub(crate) enum Look {
    /// The GPUs are ours for as long as their files are open: UUID and flocked file of each.
    Ours(Vec<(String, File)>),
    /// Others are first.
    Wait {
        /// 1 is next.
        place: u32,
        /// Who holds a GPU that would do.
        holder: String,
    },
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
        let last = self.numbers().into_iter().max().unwrap_or(0);
        let number = last + 1;
        let path = self.folder.join(format!("ticket-{number:012}"));
        let failed = |source: io::Error| QueueError::File { path: path.clone(), source };
        let lock = open_shared(&path).map_err(failed)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|e| failed(e.into()))?;
        let wish = Wish { wanted: wanted.to_vec(), count, who: who.to_owned() };
        let ticket = Ticket { path, number, wish, lock };
        ticket.write(&ticket.wish.text())?;
        Ok(Some(ticket))
    }

    /// Goes on waiting at the same place, for any of the GPUs in `wanted`; false: somebody else is
    /// looking right now.
    pub(crate) fn again(&self, ticket: &mut Ticket, wanted: &[String]) -> Result<bool, QueueError> {
        let Some(_guard) = self.guard()? else { return Ok(false) };
        wanted.clone_into(&mut ticket.wish.wanted);
        ticket.write(&ticket.wish.text())?;
        Ok(true)
    }

    /// Takes GPUs if enough are free that no earlier ticket could use. The ticket then keeps its
    /// place, but wants nothing any more, until [`Queue::again`].
    pub(crate) fn look(&self, ticket: &Ticket) -> Result<Look, QueueError> {
        let wait = |place, holder: &str| Look::Wait { place, holder: holder.into() };
        // Somebody else is looking; the next look will do.
        let Some(_guard) = self.guard()? else { return Ok(wait(1, "")) };
        let ahead = self.ahead_of(ticket);
        let mut taken: Vec<&str> = Vec::new();
        let mut place = 1;
        let mut holder = String::new();
        for earlier in &ahead {
            // The earlier job will take the first free ones of its own, and waits for the rest.
            for _ in 0..earlier.count {
                let wanted = &earlier.wanted;
                let free = |u: &&String| !taken.contains(&u.as_str()) && self.is_free(u);
                taken.extend(wanted.iter().find(free).map(String::as_str));
            }
            if earlier.wanted.iter().any(|u| ticket.wish.wanted.contains(u)) {
                place += 1;
                earlier.who.clone_into(&mut holder);
            }
        }
        // Who has the GPU says more than who waits for it.
        let mut has = String::new();
        let mut ours = Vec::new();
        for uuid in ticket.wish.wanted.iter().filter(|u| !taken.contains(&u.as_str())) {
            match self.take(uuid, &ticket.wish.who)? {
                Ok(lock) => {
                    ours.push((uuid.clone(), lock));
                    if ours.len() == ticket.wish.count {
                        ticket.write("")?;
                        return Ok(Look::Ours(ours));
                    }
                }
                Err(by) if has.is_empty() => has = by,
                Err(_) => {}
            }
        }
        Ok(wait(place, if has.is_empty() { &holder } else { &has }))
    }

    /// What the living tickets before `ticket` want, first come first.
    fn ahead_of(&self, ticket: &Ticket) -> Vec<Wish> {
        let mut numbers = self.numbers();
        numbers.retain(|n| *n < ticket.number);
        numbers.sort_unstable();
        let living = numbers.into_iter().filter_map(|number| {
            let path = self.folder.join(format!("ticket-{number:012}"));
            let file = open_existing(&path).ok()?;
            match flock(&file, FlockOperation::NonBlockingLockShared) {
                Err(Errno::WOULDBLOCK) => Some(read_text(&file)),
                // Nobody holds it: its job was killed. Others' files we may not remove.
                _ => {
                    let _ = fs::remove_file(&path);
                    None
                }
            }
        });
        living.map(|text| Wish::read(&text)).collect()
    }

    fn numbers(&self) -> Vec<u64> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries
            .filter_map(|e| e.file_name().to_str()?.strip_prefix("ticket-")?.parse().ok())
            .collect()
    }

    fn is_free(&self, uuid: &str) -> bool {
        match open_existing(&self.lock_path(uuid)) {
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_ok(),
            Err(e) => e.kind() == io::ErrorKind::NotFound,
        }
    }

    /// Takes the lock of one GPU; the inner error says who has it.
    fn take(&self, uuid: &str, who: &str) -> Result<Result<File, String>, QueueError> {
        let path = self.lock_path(uuid);
        let failed = |source: io::Error| QueueError::File { path: path.clone(), source };
        let mut file = open_shared(&path).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                // Who has it is for the eyes only.
                let _ = file.set_len(0).and_then(|()| file.write_all(who.as_bytes()));
                Ok(Ok(file))
            }
            Err(Errno::WOULDBLOCK) => Ok(Err(read_text(&file))),
            Err(e) => Err(failed(e.into())),
        }
    }

    fn lock_path(&self, uuid: &str) -> PathBuf {
        self.folder.join(format!("{uuid}.lock"))
    }

    /// The right to look, unless somebody else is looking right now.
    fn guard(&self) -> Result<Option<File>, QueueError> {
        let path = self.folder.join("queue.lock");
        let failed = |source: io::Error| QueueError::File { path: path.clone(), source };
        let file = open_shared(&path).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(failed(e.into())),
        }
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
        if looks > LOOKS {
            return refuse(format!("has the mode {:o} in the place of 1777", meta.mode() & 0o7777));
        }
        // Between somebody's making it and opening it to all.
        std::thread::sleep(BETWEEN);
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

/// Opens a file that all users share; no link is followed.
fn open_shared(path: &Path) -> io::Result<File> {
    // Kernels with `protected_regular` refuse O_CREAT for others' files, hence two ways.
    match open_existing(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    let made = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o666)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(path);
    match made {
        Ok(file) => {
            // The umask would lock other users out.
            file.set_permissions(fs::Permissions::from_mode(0o666))?;
            Ok(file)
        }
        // Somebody was faster.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => open_existing(path),
        Err(e) => Err(e),
    }
}

fn open_existing(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    // A second name would be a way to have somebody else's file written to.
    if !meta.is_file() || meta.nlink() > 1 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file of its own"));
    }
    Ok(file)
}

fn read_text(file: &File) -> String {
    let mut text = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(n) = file.read_at(&mut chunk, text.len() as u64) {
        text.extend_from_slice(&chunk[..n]);
        if n == 0 || text.len() as u64 > MOST_TEXT {
            break;
        }
    }
    String::from_utf8_lossy(&text).into_owned()
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

    fn place(look: Look) -> (u32, String) {
        match look {
            Look::Wait { place, holder } => (place, holder),
            Look::Ours(held) => panic!("got {held:?}"),
        }
    }

    fn uuid(look: &Look) -> &str {
        match look {
            Look::Ours(held) => &held[0].0,
            Look::Wait { place, .. } => panic!("place {place}"),
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
        let Look::Ours(both) = queue.look(&two).unwrap() else { panic!() };
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

    #[test]
    fn a_ticket_says_what_is_wanted_and_a_name_is_no_line_of_its_own() {
        let wish = Wish { wanted: wanted(&["A", "B"]), count: 2, who: "a\ncount 9".into() };
        let read = Wish::read(&wish.text());
        assert_eq!((read.count, read.wanted, &*read.who), (2, wanted(&["A", "B"]), "acount 9"));
        // As older agents write them.
        assert_eq!(Wish::read("A\nB").count, 1);
        assert_eq!(Wish::read("count 2\nA\nB").wanted, ["A", "B"]);
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
