//! The files that a CUDA program is compiled from and opens: its source, the headers that it
//! includes, the sources beside these, and the files that it opens by a literal name.
//!
//! Only files of the source's own repository or project are taken. A header that a path does not
//! lead to is looked for where projects keep common headers: in folders such as `common` or
//! `include` beside the source and above it.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use super::super::cuda_source::{has_main, kernel_names};
use super::super::source::{common_folder, header_folder, normalize_lexically};
use super::super::{KernelError, KernelFolders, OwnFiles, is_private};
use super::SentContent;
use super::compile_line::{CompileLine, compile_line, libraries};
use rgpu_model::agent_files;
use rgpu_model::regular_file::MAX_SOURCE_BYTES;

/// The most bytes of sources and headers together.
const MAX_TEXT_BYTES: u64 = 64 << 20;

/// The most includes that are looked for.
const MAX_INCLUDES: usize = 10_000;

/// The most files that are sent.
const MAX_FILES: usize = 2_000;

/// The most literals of a source that are looked at as names of files.
const MAX_LITERALS: usize = 2_000;

/// The most bytes of the files that a program opens, in all.
const MAX_DATA_BYTES: u64 = 256 << 20;

/// The endings of sources that may lie beside a header.
const SOURCE_ENDINGS: &[&str] = &["cu", "cpp", "cc", "cxx"];

/// The files of a program and how they are compiled.
#[derive(Debug, Default)]
pub(super) struct ProgramFiles {
    /// The sources to compile, the program's own first, by their places in the working folder.
    pub(super) sources: Vec<String>,
    /// The place of the folder of the program's own source.
    pub(super) cwd: String,
    /// All files that are sent: place and path here.
    pub(super) files: Vec<(String, SentContent)>,
    /// The options of the compiler.
    pub(super) options: Vec<String>,
    /// Names of the kernels, each once.
    pub(super) kernels: Vec<String>,
    /// What was assumed, in words.
    pub(super) assumptions: Vec<String>,
}

/// A search for the files of one program. Paths are absolute and have no `..`.
struct Search {
    own_files: OwnFiles,
    folder: PathBuf,
    /// Texts of sources and headers.
    texts: BTreeMap<PathBuf, Vec<u8>>,
    /// The sources to compile.
    sources: Vec<PathBuf>,
    /// Folders in which headers are looked for; those that were found by a search are given to
    /// the compiler.
    folders: Vec<PathBuf>,
    found_folders: Vec<PathBuf>,
    /// Names of included files, as written, each once.
    includes: Vec<String>,
    names: HashSet<String>,
    /// The headers that were found.
    headers: HashSet<PathBuf>,
    /// How many includes were looked for, and the bytes of `texts`.
    looked_for: usize,
    bytes: u64,
}

/// Collects the files of the program whose source is `source`.
///
/// # Errors
/// [`KernelError::Unreadable`] for the source; [`KernelError::OutsideProject`] for a header
/// elsewhere.
pub(super) fn collect(source: &Path, text: &str) -> Result<ProgramFiles, KernelError> {
    let absolute = std::path::absolute(source).map_err(KernelError::unreadable(source, None))?;
    let path = normalize_lexically(&absolute);
    let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let line = compile_line(text, &name);
    let CompileLine { options, sources } = line.clone().unwrap_or_default();
    let mut search = Search {
        own_files: OwnFiles::find(&folder, &KernelFolders::default()),
        folders: include_folders(&options)
            .map(|dir| normalize_lexically(&folder.join(dir)))
            .collect(),
        folder,
        texts: BTreeMap::new(),
        sources: vec![path.clone()],
        found_folders: Vec::new(),
        includes: Vec::new(),
        names: HashSet::new(),
        headers: HashSet::new(),
        looked_for: 0,
        bytes: 0,
    };
    let named: Vec<PathBuf> = sources
        .iter()
        .map(|name| normalize_lexically(&search.folder.join(name)))
        .filter(|path| path.is_file())
        .collect();
    search.sources.extend(named);
    search.read_sources(source)?;
    search.finish(line.is_some(), options)
}

/// The relative folders of `-I` among the compiler's options.
fn include_folders(options: &[String]) -> impl Iterator<Item = &str> {
    let is_alone = |word: &str| word == "-I" || word == "--include-path";
    let values = options.windows(2).filter(move |pair| is_alone(&pair[0])).map(|pair| &*pair[1]);
    let joined = options.iter().filter_map(|word| {
        let value = word.strip_prefix("--include-path=").or_else(|| word.strip_prefix("-I"))?;
        (!value.is_empty()).then(|| value.trim_start_matches('='))
    });
    values.chain(joined).filter(|folder| !folder.starts_with('/'))
}

impl Search {
    /// Reads the sources and what they include, until nothing new is included.
    fn read_sources(&mut self, typed: &Path) -> Result<(), KernelError> {
        let mut next_source = 0;
        while let Some(source) = self.sources.get(next_source).cloned() {
            next_source += 1;
            let mut queue = vec![source];
            while let Some(path) = queue.pop() {
                if self.texts.contains_key(&path) || self.texts.len() >= MAX_FILES {
                    continue;
                }
                let is_own = self.sources.first() == Some(&path);
                if !is_own {
                    if is_private(&path) {
                        continue;
                    }
                    self.own_files.check_include(&path)?;
                }
                let bytes = match agent_files::read(&path, MAX_SOURCE_BYTES) {
                    Ok(bytes) => bytes,
                    Err(_) if !is_own => continue,
                    Err(error) => return Err(KernelError::unreadable(typed, None)(error)),
                };
                self.bytes = self.bytes.saturating_add(bytes.len() as u64);
                if self.bytes > MAX_TEXT_BYTES {
                    let why = "its sources and headers are larger than 64 MiB together";
                    return Err(KernelError::unreadable(typed, None)(std::io::Error::other(why)));
                }
                let text = String::from_utf8_lossy(&bytes).into_owned();
                self.texts.insert(path.clone(), bytes);
                queue.extend(self.headers(&path, &text));
            }
        }
        Ok(())
    }

    /// The headers that the text of a file includes and that no file before it does.
    fn headers(&mut self, path: &Path, text: &str) -> Vec<PathBuf> {
        let mut headers = Vec::new();
        for (name, is_quoted) in includes(text) {
            self.looked_for += 1;
            if self.looked_for > MAX_INCLUDES {
                break;
            }
            if let Some(header) = self.resolve(path, name, is_quoted)
                && self.headers.insert(header.clone())
            {
                self.add_source_beside(&header);
                headers.push(header);
            }
            if self.names.insert(name.to_owned()) {
                self.includes.push(name.to_owned());
            }
        }
        headers
    }

    /// The file that an include names. `None`: the compiler has it, or nobody.
    fn resolve(&mut self, from: &Path, name: &str, is_quoted: bool) -> Option<PathBuf> {
        let beside = from.parent().unwrap_or(Path::new("/"));
        let beside = is_quoted.then(|| beside.to_owned());
        for folder in beside.iter().chain(&self.folders) {
            let path = normalize_lexically(&folder.join(name));
            if path.is_file() {
                return Some(path);
            }
        }
        // Names such as `vector` are those of the standard library.
        if !name.contains('.') {
            return None;
        }
        let folder = header_folder(&self.folder, name, &self.own_files)?;
        self.folders.push(folder.clone());
        self.found_folders.push(folder.clone());
        Some(normalize_lexically(&folder.join(name)))
    }

    /// Adds `kernel.cu` for the header `kernel.h` beside it, if it is no program itself and no
    /// file includes it.
    fn add_source_beside(&mut self, header: &Path) {
        let ending = header.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if !matches!(ending, "h" | "hpp" | "cuh" | "hh") {
            return;
        }
        for ending in SOURCE_ENDINGS {
            let path = header.with_extension(ending);
            if self.sources.contains(&path) || !path.is_file() || is_private(&path) {
                continue;
            }
            let Ok(bytes) = agent_files::read(&path, MAX_SOURCE_BYTES) else { continue };
            if !has_main(&String::from_utf8_lossy(&bytes)) {
                self.sources.push(path);
            }
        }
    }

    fn finish(mut self, has_line: bool, given: Vec<String>) -> Result<ProgramFiles, KernelError> {
        let texts: Vec<String> =
            self.texts.values().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect();
        // What is included is compiled with what includes it.
        let included: Vec<&str> =
            self.includes.iter().filter_map(|n| n.rsplit('/').next()).collect();
        let own = self.sources.first().cloned();
        self.sources.retain(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            Some(path) == own.as_ref() || !included.contains(&&*name)
        });
        let data = self.opened_files(&texts);
        let paths: Vec<PathBuf> = self.texts.keys().chain(&data).cloned().collect();
        let root = common_folder(&paths);
        let place = |path: &Path| {
            path.strip_prefix(&root).map(|inner| inner.display().to_string()).unwrap_or_default()
        };
        let libraries = libraries(&self.includes, &texts, &given);
        let mut assumptions = Vec::new();
        if has_line {
            let words = given.join(" ");
            assumptions.push(if words.is_empty() {
                "nothing of the command line in its comments is needed".to_owned()
            } else {
                format!("compiled with `{words}`, as its comments say")
            });
        }
        if !libraries.is_empty() {
            let words = libraries.join(" ");
            assumptions.push(format!("linked with `{words}`, by what it includes and calls"));
        }
        let others: Vec<String> = self.sources.iter().skip(1).map(|path| place(path)).collect();
        if !others.is_empty() {
            let names: Vec<&str> =
                others.iter().filter_map(|path| path.rsplit('/').next()).collect();
            assumptions.push(format!("compiled together with `{}`", names.join("`, `")));
        }
        let headers = self.texts.len().saturating_sub(self.sources.len());
        if let Some(sent) = sent_with_it(headers, data.len()) {
            assumptions.push(sent);
        }
        let mut options = given;
        for folder in &self.found_folders {
            let inner = folder.strip_prefix(&root).map(Path::to_owned).unwrap_or_default();
            let option = format!("-I{}", up_from(&self.folder, &root).join(inner).display());
            if !options.contains(&option) {
                options.push(option);
            }
        }
        options.extend(libraries);
        let content = |path: &PathBuf| (place(path), SentContent::Here(path.clone()));
        let files = paths.iter().map(content).collect();
        Ok(ProgramFiles {
            sources: self.sources.iter().map(|path| place(path)).collect(),
            cwd: place(&self.folder),
            files,
            options,
            kernels: kernels_of(&texts),
            assumptions,
        })
    }

    /// The files beside the source that a literal of a source names, up to [`MAX_DATA_BYTES`].
    /// `--mount` brings larger ones.
    fn opened_files(&self, texts: &[String]) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = Vec::new();
        if !self.own_files.has_data() {
            return found;
        }
        let mut bytes = 0_u64;
        let literals = texts.iter().flat_map(|text| literals(text)).take(MAX_LITERALS);
        for literal in literals.filter(|literal| literal.contains(['.', '/'])) {
            let path = normalize_lexically(&self.folder.join(literal));
            let is_new = !found.contains(&path) && !self.texts.contains_key(&path);
            if is_new
                && path.is_file()
                && !is_private(&path)
                && self.own_files.check(&path, None).is_ok()
                && agent_files::check(&path).is_ok()
            {
                let size = path.metadata().map_or(0, |metadata| metadata.len());
                bytes = bytes.saturating_add(size);
                if bytes <= MAX_DATA_BYTES {
                    found.push(path);
                }
            }
        }
        found
    }
}

/// The names of the kernels in these texts, each once.
pub(super) fn kernels_of<'a>(texts: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let mut known = HashSet::new();
    let names = texts.into_iter().flat_map(|text| kernel_names(text));
    names.filter(|name| known.insert(name.clone())).collect()
}

/// The relative path from `folder` up to `root`, which contains it.
fn up_from(folder: &Path, root: &Path) -> PathBuf {
    let depth = folder.strip_prefix(root).map_or(0, |inner| inner.components().count());
    if depth == 0 { PathBuf::from(".") } else { std::iter::repeat_n("..", depth).collect() }
}

/// What else is sent, in words.
fn sent_with_it(headers: usize, data: usize) -> Option<String> {
    let counted = |count: usize, one: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        count => Some(format!("{count} {one}s")),
    };
    let parts: Vec<String> = [counted(headers, "header"), counted(data, "file that it names")]
        .into_iter()
        .flatten()
        .collect();
    let is_one = headers + data == 1;
    let are = if is_one { "is" } else { "are" };
    (!parts.is_empty()).then(|| format!("{} {are} sent with it", parts.join(" and ")))
}

/// The names of `#include` lines, each with whether it is quoted.
fn includes(text: &str) -> impl Iterator<Item = (&str, bool)> {
    text.lines().filter_map(|line| {
        let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?;
        let rest = rest.trim_start();
        let (name, is_quoted) = match rest.strip_prefix('"') {
            Some(rest) => (rest.split_once('"')?.0, true),
            None => (rest.strip_prefix('<')?.split_once('>')?.0, false),
        };
        (!name.is_empty() && !name.starts_with('/')).then_some((name, is_quoted))
    })
}

/// The string literals of a source that could be names of files: short, in one line, without
/// escapes.
fn literals(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.trim_start().starts_with('#')).flat_map(|line| {
        line.split('"').skip(1).step_by(2).filter(|literal| {
            (1..=200).contains(&literal.len()) && !literal.contains(['\\', '%', '\0', '*'])
        })
    })
}
