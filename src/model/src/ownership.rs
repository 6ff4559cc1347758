//! Whose files count: the `.git` and `rgpu.toml` of a project, and the user's own settings.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Whether a file or folder above `folder` may say which project `folder` belongs to: its owner is
/// this user, root, or the owner of `folder`. Anyone may put one into `/tmp`, which is above many
/// folders. Of a link, both the link and what it leads to count. The same holds for a file that
/// nobody named and that lies beside or above one that somebody did.
pub fn may_decide(mark: &Path, folder: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let of_folder = folder.metadata().map(|meta| meta.uid()).ok();
    let is_trusted = |meta: io::Result<std::fs::Metadata>| {
        meta.is_ok_and(|meta| meta.uid() == own || meta.uid() == 0 || Some(meta.uid()) == of_folder)
    };
    is_trusted(mark.symlink_metadata()) && is_trusted(mark.metadata())
}

/// Why others than the user can change a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// It belongs to another user.
    Owner,
    /// Others can write to it; its mode.
    Mode(u32),
}

impl fmt::Display for Exposure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner => write!(f, "it belongs to another user"),
            Self::Mode(mode) => write!(f, "others can write to it (mode {mode:04o})"),
        }
    }
}

impl Exposure {
    /// Why others can change what has this path, links resolved. `None` if they cannot, and if
    /// there is nothing.
    ///
    /// Root and the owner of the folder `home` are no others, and neither is the user's own group,
    /// which is often for the user alone. In a folder with the sticky bit, others replace no file.
    pub fn at_path(path: &Path, home: Option<&Path>) -> Option<Self> {
        let meta = path.metadata().ok()?;
        let of_home = home.and_then(|home| home.metadata().ok()).map(|meta| meta.uid());
        let own = rustix::process::geteuid().as_raw();
        if ![Some(own), Some(0), of_home].contains(&Some(meta.uid())) {
            return Some(Self::Owner);
        }
        let mode = meta.mode() & 0o7777;
        let is_own_group = meta.gid() == rustix::process::getegid().as_raw();
        let is_writable = mode & 0o002 != 0 || mode & 0o020 != 0 && !is_own_group;
        let is_sticky = meta.is_dir() && mode & 0o1000 != 0;
        (is_writable && !is_sticky).then_some(Self::Mode(mode))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    use super::*;

    /// The user `nobody`.
    const OTHER: u32 = 65534;

    #[test]
    fn marks_of_other_users_do_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let (above, folder) = (dir.path(), dir.path().join("inner"));
        fs::create_dir(&folder).unwrap();
        let (mark, link) = (above.join("mark"), above.join("link"));
        fs::write(&mark, "").unwrap();
        symlink(&mark, &link).unwrap();
        assert!(may_decide(&mark, &folder) && may_decide(&link, &folder));
        assert!(!may_decide(&above.join("absent"), &folder));
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can make files of other users");
            return;
        }
        lchown(&link, Some(OTHER), None).unwrap();
        assert!(may_decide(&mark, &folder) && !may_decide(&link, &folder));
        chown(&mark, Some(OTHER), None).unwrap();
        assert!(!may_decide(&mark, &folder));
        // A project that belongs to another user as a whole.
        chown(&folder, Some(OTHER), None).unwrap();
        assert!(may_decide(&mark, &folder) && may_decide(&link, &folder));
    }

    #[test]
    fn a_folder_that_others_can_change_is_exposed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("rgpu");
        fs::create_dir(&folder).unwrap();
        let exposure = |mode: u32| {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            Exposure::at_path(&folder, None)
        };
        for mode in [0o700, 0o755, 0o1777] {
            assert_eq!(exposure(mode), None, "{mode:o}");
        }
        assert_eq!(exposure(0o777), Some(Exposure::Mode(0o777)));
        assert_eq!(exposure(0o702).unwrap().to_string(), "others can write to it (mode 0702)");
        // The group of a new folder is the user's own.
        let own_group = folder.metadata().unwrap().gid() == rustix::process::getegid().as_raw();
        assert_eq!(exposure(0o775).is_none(), own_group);
        assert_eq!(Exposure::at_path(&dir.path().join("absent"), None), None);
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can make files of other users");
            return;
        }
        chown(&folder, None, Some(OTHER)).unwrap();
        assert_eq!(exposure(0o775), Some(Exposure::Mode(0o775)));
        chown(&folder, Some(OTHER), None).unwrap();
        assert_eq!(exposure(0o700), Some(Exposure::Owner));
        // The user's own home, when root uses it.
        chown(dir.path(), Some(OTHER), None).unwrap();
        assert_eq!(Exposure::at_path(&folder, Some(dir.path())), None);
    }
}
