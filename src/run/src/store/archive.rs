//! Exports a run as one file: a tar archive of its folder, compressed with zstd.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::FileType;

use rgpu_model::beneath::Folder;

/// A low compression level: the tools' reports are large and compressed already.
const ZSTD_LEVEL: i32 = 3;

/// An archive that is being written.
pub struct Archive<'a> {
    tar: tar::Builder<zstd::stream::Encoder<'a, &'a mut File>>,
}

impl<'a> Archive<'a> {
    /// Starts an archive in `file`.
    pub fn new(file: &'a mut File) -> io::Result<Self> {
        let packed = zstd::stream::Encoder::new(file, ZSTD_LEVEL)?;
        Ok(Self { tar: tar::Builder::new(packed) })
    }

    /// Adds a document under `name`, with the modification time `mtime_s` (Unix seconds).
    pub fn document(&mut self, name: &str, bytes: &[u8], mtime_s: u64) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(mtime_s);
        self.tar.append_data(&mut header, name, bytes)
    }

    /// Adds every regular file below `folder` under `name`, except files that are still being
    /// written.
    pub fn folder(&mut self, name: &str, folder: &Path) -> io::Result<()> {
        let folder = Folder::open(folder)?;
        for entry in folder.walk()? {
            let is_unfinished = |name: &OsStr| name.as_encoded_bytes().starts_with(b".");
            let is_unfinished = entry.path.file_name().is_some_and(is_unfinished);
            if entry.kind != FileType::RegularFile || is_unfinished {
                continue;
            }
            let inside = &entry.path;
            let mut file = folder.open_file(inside)?;
            let meta = file.metadata()?;
            let mut header = tar::Header::new_gnu();
            // Stores modes but no owner.
            header.set_metadata_in_mode(&meta, tar::HeaderMode::Deterministic);
            header.set_mtime(modified_s(&meta));
            self.tar.append_data(&mut header, Path::new(name).join(inside), &mut file)?;
        }
        Ok(())
    }

    /// Completes the archive.
    pub fn finish(self) -> io::Result<()> {
        self.tar.into_inner()?.finish()?;
        Ok(())
    }
}

fn modified_s(meta: &std::fs::Metadata) -> u64 {
    let since_epoch =
        meta.modified().ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
    since_epoch.map_or(0, |since_epoch| since_epoch.as_secs())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;

    use super::*;

    #[test]
    fn an_archive_holds_what_the_folder_does_but_unfinished_files_and_links() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        fs::create_dir_all(run.join("raw")).unwrap();
        fs::write(run.join("raw/report"), "x".repeat(5000)).unwrap();
        fs::write(run.join(".writing-1"), "half").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", run.join("link")).unwrap();
        let path = dir.path().join("run.tar.zst");
        super::super::atomic::write_new(&path, |file| {
            let mut archive = Archive::new(file)?;
            archive.folder("one", &run)?;
            archive.document("one/more.json", b"{}", 7)?;
            archive.finish()
        })
        .unwrap();
        let tar = zstd::stream::Decoder::new(File::open(&path).unwrap()).unwrap();
        let mut archive = tar::Archive::new(tar);
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            found.push((entry.path().unwrap().display().to_string(), text.len()));
        }
        assert_eq!(found, [("one/raw/report".into(), 5000), ("one/more.json".into(), 2)]);
        let again = super::super::atomic::write_new(&path, |_| Ok(()));
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
}
