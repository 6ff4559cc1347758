//! Packs a tree into a Python wheel, so that `uv tool install` and `pip install` give a working
//! `rgpu`, and `import rgpu`. The same tree gives the same bytes.
//!
//! A wheel is a zip file (packaging.python.org, "Binary distribution format"). An installer puts
//! `….data/scripts` into `bin` of an environment and `….data/data` into its root, so that `rgpu`
//! finds its `libexec` and `share` beside `bin`, as in the tree.

use super::archive::Artifact;
use super::{DistError, Target, at, links};
use crate::workspace::Workspace;
use base64ct::{Base64UrlUnpadded, Encoding};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// The tree's folder of programs, which an installer puts on PATH.
const PROGRAMS: &str = "bin";
/// The folder of the Python package in the repository.
const PACKAGE: &str = "python/rgpu";
const README: &str = "README.md";
const LICENCES: &[&str] = &["LICENSE-APACHE", "LICENSE-MIT"];

/// Packs `tree` for machines of `target` into a file beside it.
pub(super) fn pack(
    workspace: &Workspace,
    target: &Target,
    tree: &Path,
) -> Result<Artifact, DistError> {
    let version = env!("CARGO_PKG_VERSION");
    let tags = target.wheel_tags;
    let name = format!("rgpu-{version}-py3-none-{}.whl", tags.join("."));
    let file = tree.with_file_name(name);
    let mut wheel = Wheel::create(&file)?;
    let data = format!("rgpu-{version}.data");
    wheel.folder(&workspace.root.join(PACKAGE), "rgpu")?;
    for entry in sorted(tree)? {
        let name = name_of(&entry);
        match name.as_str() {
            PROGRAMS => wheel.folder(&entry, &format!("{data}/scripts"))?,
            _ => wheel.folder(&entry, &format!("{data}/data/{name}"))?,
        }
    }
    let info = format!("rgpu-{version}.dist-info");
    let read = |name: &str| {
        let path = workspace.root.join(name);
        fs::read(&path).map_err(at(&path))
    };
    for licence in LICENCES {
        wheel.file(&format!("{info}/licenses/{licence}"), &read(licence)?, false)?;
    }
    // An index shows it where none of the files is.
    let readme = links::for_pages(&workspace.root, Path::new(README))?;
    let metadata = workspace.rgpu.metadata(version) + &readme;
    wheel.file(&format!("{info}/METADATA"), metadata.as_bytes(), false)?;
    let mut about =
        format!("Wheel-Version: 1.0\nGenerator: rgpu xtask {version}\nRoot-Is-Purelib: false\n");
    for tag in tags {
        about.push_str(&format!("Tag: py3-none-{tag}\n"));
    }
    wheel.file(&format!("{info}/WHEEL"), about.as_bytes(), false)?;
    wheel.finish(&format!("{info}/RECORD"))?;
    Artifact::from_file(file)
}

/// A wheel that is being written.
struct Wheel {
    path: PathBuf,
    zip: ZipWriter<fs::File>,
    /// The lines of RECORD.
    record: String,
}

impl Wheel {
    fn create(path: &Path) -> Result<Self, DistError> {
        let zip = ZipWriter::new(fs::File::create(path).map_err(at(path))?);
        Ok(Self { path: path.to_owned(), zip, record: String::new() })
    }

    /// Adds the files of a folder and of its folders.
    fn folder(&mut self, from: &Path, name: &str) -> Result<(), DistError> {
        for entry in sorted(from)?.into_iter().filter(|entry| !entry.ends_with("__pycache__")) {
            let name = format!("{name}/{}", name_of(&entry));
            if entry.is_dir() {
                self.folder(&entry, &name)?;
            } else {
                let bytes = fs::read(&entry).map_err(at(&entry))?;
                self.file(&name, &bytes, is_program(&entry)?)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, name: &str, bytes: &[u8], is_program: bool) -> Result<(), DistError> {
        let sha256 = Base64UrlUnpadded::encode_string(&rgpu_protocol::sha256(bytes));
        self.record.push_str(&format!("{name},sha256={sha256},{}\n", bytes.len()));
        self.add(name, bytes, is_program).map_err(at(&self.path))
    }

    fn add(&mut self, name: &str, bytes: &[u8], is_program: bool) -> io::Result<()> {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .compression_level(Some(9))
            // The earliest time that a zip file can hold, 1980.
            .last_modified_time(zip::DateTime::default())
            .unix_permissions(if is_program { 0o755 } else { 0o644 });
        self.zip.start_file(name, options)?;
        self.zip.write_all(bytes)
    }

    /// Adds the list of files, which has no hash of its own.
    fn finish(mut self, name: &str) -> Result<(), DistError> {
        self.record.push_str(&format!("{name},,\n"));
        let record = std::mem::take(&mut self.record);
        self.add(name, record.as_bytes(), false).map_err(at(&self.path))?;
        self.zip.finish().map_err(|error| at(&self.path)(error.into()))?;
        Ok(())
    }
}

/// The entries of a folder, in the order of their names.
fn sorted(folder: &Path) -> Result<Vec<PathBuf>, DistError> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let mut paths: Vec<PathBuf> =
        entries.map_err(at(folder))?.iter().map(fs::DirEntry::path).collect();
    paths.sort();
    Ok(paths)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn is_program(path: &Path) -> Result<bool, DistError> {
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(path).map_err(at(path))?.permissions().mode();
    Ok(mode & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::io::Read;

    /// Reads the names, bytes and modes of a wheel.
    fn contents(wheel: &Path) -> BTreeMap<String, (Vec<u8>, u32)> {
        let mut zip = zip::ZipArchive::new(fs::File::open(wheel).expect("a wheel")).expect("a zip");
        let mut files = BTreeMap::new();
        for index in 0..zip.len() {
            let mut file = zip.by_index(index).expect("a file");
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).expect("its bytes");
            let mode = file.unix_mode().expect("its mode") & 0o777;
            let name = file.name().expect("its name").into_owned();
            files.insert(name, (bytes, mode));
        }
        files
    }

    #[test]
    fn a_wheel_holds_the_tree_with_modes_and_a_record_of_every_file() {
        use std::os::unix::fs::PermissionsExt;
        let workspace = Workspace::find().expect("this workspace");
        let folder = std::env::temp_dir().join(format!("rgpu-xtask-wheel-{}", std::process::id()));
        let tree = folder.join("rgpu-1");
        let put = |name: &str, mode: u32| {
            let path = tree.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(&path, name).expect("a file");
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("a mode");
        };
        put("bin/rgpu", 0o755);
        put("libexec/rgpu/t/rgpu-agent", 0o755);
        put("share/doc/rgpu/README.md", 0o600);
        let target = Target::named(&["aarch64".to_owned()]).expect("a target");
        let first = pack(&workspace, target, &tree).expect("a wheel");
        put("bin/rgpu", 0o755);
        let second = pack(&workspace, target, &tree).expect("a wheel");
        let files = contents(&first.file);
        let name = name_of(&first.file);
        fs::remove_dir_all(&folder).expect("our own folder");

        assert_eq!(first.sha256, second.sha256);
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            name,
            format!("rgpu-{version}-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.whl")
        );
        let data = format!("rgpu-{version}.data");
        let mode = |name: &str| files[&format!("{data}/{name}")].1;
        assert_eq!(files["rgpu/__init__.py"].1, 0o644);
        assert!(files.contains_key("rgpu/py.typed") && files.contains_key("rgpu/_commands.pyi"));
        assert!(!files.keys().any(|name| name.contains("__pycache__")));
        assert_eq!(mode("scripts/rgpu"), 0o755);
        assert_eq!(mode("data/libexec/rgpu/t/rgpu-agent"), 0o755);
        assert_eq!(mode("data/share/doc/rgpu/README.md"), 0o644);
        let info = format!("rgpu-{version}.dist-info");
        let text = |name: &str| {
            String::from_utf8(files[&format!("{info}/{name}")].0.clone()).expect("text")
        };
        assert!(text("WHEEL").contains("\nTag: py3-none-manylinux2014_aarch64\n"));
        let metadata = text("METADATA");
        let (head, readme) = metadata.split_once("\n\n").expect("a head and a text");
        assert!(head.starts_with("Metadata-Version: 2.4\nName: rgpu\n"), "{head}");
        assert!(readme.starts_with("# rgpu\n"), "{readme}");
        assert!(readme.contains("](https://github.com/rgpu/rgpu/blob/main/docs/install.md)"));
        assert!(!readme.contains("](docs/") && !readme.contains("](kernels/"), "{readme}");
        let record = text("RECORD");
        for (name, (bytes, _)) in &files {
            let sha256 = Base64UrlUnpadded::encode_string(&rgpu_protocol::sha256(bytes));
            let line = if name.ends_with("/RECORD") {
                format!("{name},,\n")
            } else {
                format!("{name},sha256={sha256},{}\n", bytes.len())
            };
            assert!(record.contains(&line), "{line} is not in {record}");
        }
        assert_eq!(record.lines().count(), files.len());
    }
}
