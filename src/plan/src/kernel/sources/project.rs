//! A folder with a CMakeLists.txt or a Makefile: sent whole, built on the host, and the program
//! that the build makes is run. A folder with one CUDA program and no build file is that program.
//!
//! Build files and sources may name files above the folder (`../common`). Those of the same
//! repository or project come along and keep their places.

#![expect(clippy::disallowed_methods, reason = "names in a folder that the user named")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::super::cuda_source::has_main;
use super::super::source::{common_folder, normalize_lexically};
use super::super::{KernelError, KernelFolders, OwnFiles, is_private, name_of};
use super::cuda_program::program;
use super::program_files::kernels_of;
use super::{
    BuildSystem, FolderBuild, Found, FoundProgram, KernelSource, ProgramBuild, UsualArguments,
};
use crate::kernel::ProfileMode;
use rgpu_model::agent_files;
use rgpu_model::error::shell_word;

/// A folder that CMake or make builds.
pub(super) static PROJECT: KernelSource = KernelSource { name: "a folder of a program", read };

/// The most files of a folder that are looked at, and how deep.
const MAX_FILES: usize = 2_000;
const MAX_DEPTH: usize = 5;

/// The most bytes of a file that are searched, and of all together.
const MAX_TEXT_BYTES: u64 = 1 << 20;
const MAX_SEARCHED_BYTES: usize = 32 << 20;

/// The most names of files above the folder that are looked for.
const MAX_NAMES: usize = 10_000;

/// The most files and folders above the folder that come along.
const MAX_OUTER: usize = 32;

/// The endings of sources and headers.
const SOURCES: &[&str] = &["cu", "cuh", "h", "hpp", "cpp", "cc", "cxx", "c"];

const CMAKE: &str = "CMakeLists.txt";
const MAKEFILES: &[&str] = &["GNUmakefile", "makefile", "Makefile"];

fn read(path: &Path) -> Option<Result<Found, KernelError>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_build_file = name == CMAKE || MAKEFILES.contains(&&*name);
    let folder = if is_build_file && path.is_file() {
        let folder = path.parent().unwrap_or(Path::new(""));
        if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
    } else {
        path
    };
    if !folder.is_dir() {
        return None;
    }
    let files = files_of(folder);
    let cmake = text(&folder.join(CMAKE));
    let make = MAKEFILES.iter().find_map(|name| text(&folder.join(name)));
    // What CMake has left in its source folder is for the machine that it ran on.
    let make = make.filter(|text| !text.contains("CMAKE generated file"));
    let has_cuda = files.iter().any(|path| has_extension(path, &["cu", "cuh"]));
    let mentions = |text: &String| {
        let text = text.to_lowercase();
        text.contains("cuda") || text.contains("nvcc")
    };
    let is_cuda = has_cuda || cmake.iter().chain(&make).any(mentions);
    let system = match (&cmake, &make) {
        _ if !is_cuda => return None,
        (Some(_), _) if !is_build_file || name == CMAKE => BuildSystem::CMake,
        (_, Some(_)) => BuildSystem::Make,
        (Some(_), None) => BuildSystem::CMake,
        (None, None) => return only_program(folder, &files),
    };
    Some(project(folder, system, &files).map(Found::Program))
}

fn project(
    folder: &Path,
    system: BuildSystem,
    files: &[PathBuf],
) -> Result<FoundProgram, KernelError> {
    let absolute = folder.canonicalize().map_err(KernelError::unreadable(folder, None))?;
    let texts = texts_of(files);
    let outer = outer_files(&absolute, &texts);
    let mut all: Vec<PathBuf> = outer.to_vec();
    // The common folder of files is that of their parents.
    all.push(absolute.join(CMAKE));
    let root = common_folder(&all);
    let place = |path: &Path| {
        path.strip_prefix(&root).map(|inner| inner.display().to_string()).unwrap_or_default()
    };
    let cwd = place(&absolute);
    let sent = std::iter::once(&absolute).chain(&outer);
    let sent = sent.map(|path| (place(path), path.clone())).collect();
    let in_cuda = texts.iter().filter(|(path, _)| has_extension(path, &["cu", "cuh"]));
    let kernels = kernels_of(in_cuda.map(|(_, text)| text));
    let name = name_of(&absolute);
    let mut assumptions = vec![match system {
        BuildSystem::CMake => "the folder is sent and built there by CMake".to_owned(),
        BuildSystem::Make => "the folder is sent and built there by make".to_owned(),
    }];
    let is_debug = |path: &&PathBuf| {
        let is_build_file = file_name(path) == CMAKE || MAKEFILES.contains(&&*file_name(path));
        is_build_file && text(path).is_some_and(|text| text.split_whitespace().any(is_dash_g))
    };
    if let Some(file) = files.iter().find(is_debug) {
        assumptions.push(format!(
            "`{}` compiles with -G as it says, so that its kernels are slow",
            file_name(file)
        ));
    }
    if !outer.is_empty() {
        let names: Vec<String> = outer.iter().map(|path| place(path)).collect();
        assumptions.push(format!("`{}` above it, which it names, is sent too", names.join("`, `")));
    }
    Ok(FoundProgram {
        format: match system {
            BuildSystem::CMake => "a project of CMake",
            BuildSystem::Make => "a project with a Makefile",
        },
        build: Some(ProgramBuild::Folder(FolderBuild {
            system,
            folder: cwd.clone(),
            sent,
            name: name.clone(),
            target: None,
        })),
        name,
        path: folder.to_owned(),
        command: Vec::new(),
        cwd,
        files: Vec::new(),
        kernels,
        kernel_filter: None,
        driver: None,
        is_rank: false,
        usual_arguments: usual_arguments(folder, files),
        mode: ProfileMode::Nsys,
        assumptions,
    })
}

/// The arguments that the project's build files, its README or its sources give its program.
fn usual_arguments(folder: &Path, files: &[PathBuf]) -> UsualArguments {
    let sources: Vec<(&PathBuf, String)> = files
        .iter()
        .filter(|path| has_extension(path, SOURCES))
        .filter_map(|path| Some((path, text(path)?)))
        .filter(|(_, text)| text.contains("argc"))
        .collect();
    let readmes = ["README.md", "README", "README.txt", "readme.md"];
    let told = MAKEFILES
        .iter()
        .chain(&readmes)
        .filter_map(|name| Some(((*name).to_owned(), text(&folder.join(name))?)));
    let of_sources = sources.iter().map(|(path, text)| (file_name(path), text.clone()));
    UsualArguments::find(folder, sources.iter().map(|(_, text)| &**text), told.chain(of_sources))
}

/// Whether a word of a build file is nvcc's `-G`, also as the first of an assignment.
fn is_dash_g(word: &str) -> bool {
    word.rsplit('=').next().is_some_and(|word| word.trim_matches(['"', ')']) == "-G")
}

/// The only program among the sources of a folder without a build file. `None`: it has none.
fn only_program(folder: &Path, files: &[PathBuf]) -> Option<Result<Found, KernelError>> {
    let is_here = |path: &&PathBuf| path.parent() == Some(folder) && has_extension(path, &["cu"]);
    let programs: Vec<(&PathBuf, String)> = files
        .iter()
        .filter(is_here)
        .filter_map(|path| Some((path, text(path)?)))
        .filter(|(_, text)| has_main(text))
        .collect();
    match programs.as_slice() {
        [] => None,
        [(path, text)] => Some(program(path, text).map(Found::Program)),
        several @ [(first, _), ..] => {
            let names: Vec<String> = several.iter().map(|(path, _)| file_name(path)).collect();
            Some(Err(KernelError::NotInferred {
                file: folder.to_owned(),
                problem: format!(
                    "it has no build file and {} programs: `{}`",
                    several.len(),
                    names.join("`, `")
                ),
                instead: Some(format!("name one: `rgpu profile {}`", shell_word(first.display()))),
            }))
        }
    }
}

/// The regular files below a folder, sorted; links are not followed, and hidden folders and those
/// of builds are not entered.
fn files_of(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut queue = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = queue.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten().take(MAX_FILES) {
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let is_entered = depth < MAX_DEPTH && !name.starts_with('.') && name != "build";
            if kind.is_dir() && is_entered {
                queue.push((entry.path(), depth + 1));
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
        if found.len() >= MAX_FILES {
            break;
        }
    }
    found.sort();
    found
}

/// The files and folders of the project above `folder` that its build files and sources name by
/// `../…`, each once and none below another.
fn outer_files(folder: &Path, texts: &[(&PathBuf, String)]) -> Vec<PathBuf> {
    let own_files = OwnFiles::find(folder, &KernelFolders::default());
    let mut found: BTreeSet<PathBuf> = BTreeSet::new();
    let mut names = 0;
    for (file, text) in texts {
        let Ok(real) = file.canonicalize() else { continue };
        let from = real.parent().unwrap_or(Path::new("/")).to_owned();
        let is_source = has_extension(file, SOURCES);
        for name in paths_up(text) {
            names += 1;
            if names > MAX_NAMES || found.len() >= MAX_OUTER {
                break;
            }
            // A source that names a folder alone opens nothing of it.
            if is_source && name.ends_with("..") {
                continue;
            }
            // A build file may also mean the folder that the project begins in.
            for from in [from.as_path(), folder] {
                let path = normalize_lexically(&from.join(name));
                let is_outer = !path.starts_with(folder)
                    && path.exists()
                    && !is_private(&path)
                    && own_files.check(&path, None).is_ok()
                    && (path.is_dir() || agent_files::check(&path).is_ok());
                if is_outer {
                    found.insert(path);
                }
            }
        }
    }
    let all: Vec<PathBuf> = found.into_iter().collect();
    let is_below =
        |path: &PathBuf| all.iter().any(|other| other != path && path.starts_with(other));
    all.iter().filter(|path| !is_below(path)).cloned().collect()
}

/// The texts of build files and sources, up to [`MAX_SEARCHED_BYTES`].
fn texts_of(files: &[PathBuf]) -> Vec<(&PathBuf, String)> {
    let mut bytes = 0_usize;
    let texts = files.iter().filter(|path| is_searched(path));
    let texts = texts.filter_map(|path| Some((path, text(path)?)));
    let has_room = |(_, text): &(&PathBuf, String)| {
        bytes = bytes.saturating_add(text.len());
        bytes <= MAX_SEARCHED_BYTES
    };
    texts.take_while(has_room).collect()
}

/// Whether a file may name files above the folder.
fn is_searched(path: &Path) -> bool {
    let name = file_name(path);
    name == CMAKE
        || MAKEFILES.contains(&name.as_str())
        || name.starts_with("Makefile.")
        || has_extension(path, &["cmake", "mk", "mak"])
        || has_extension(path, SOURCES)
}

/// The relative paths in a text that lead upwards: `../common/x.h`.
fn paths_up(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("../").filter_map(|(at, _)| {
        let before = text[..at].chars().next_back();
        // The middle of a longer path is a part of it; `-I../x` has no space.
        let begins = before != Some('.');
        let is_middle = text[..at].ends_with("../");
        let rest = &text[at..];
        let is_end = |c: char| !(c.is_alphanumeric() || "./_-+".contains(c));
        let end = rest.find(is_end).unwrap_or(rest.len());
        (begins && !is_middle).then(|| rest[..end].trim_end_matches('/'))
    })
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().and_then(|found| found.to_str()).is_some_and(|e| extensions.contains(&e))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The text of a file of a project; `None` if it is no regular file, cannot be read, or is large.
fn text(path: &Path) -> Option<String> {
    let bytes = agent_files::read(path, MAX_TEXT_BYTES).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::super::super::find::find_source;
    use super::*;

    fn write(folder: &Path, name: &str, text: &str) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn found(path: &Path) -> FoundProgram {
        match find_source(path.to_str().unwrap(), &KernelFolders::default()).unwrap() {
            Found::Program(program) => program,
            Found::Kernel(kernel) => panic!("{kernel:?}"),
        }
    }

    fn sent(program: &FoundProgram) -> Vec<&str> {
        program.files.iter().map(|(place, _)| place.as_str()).collect()
    }

    const MAIN: &str = "__global__ void k(float *x) {}\nint main() { k<<<1, 1>>>(0); }\n";

    #[test]
    fn a_folder_with_a_makefile_brings_what_it_names_above_it_and_no_objects() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("project");
        write(&top, "rgpu.toml", "");
        write(&top, "common/x.h", "");
        write(&top, "common/inner/y.h", "");
        write(&top, "other/z.h", "");
        write(&top, "app/Makefile", "app: a.cu ../common/x.h\n\tnvcc -G -I../common a.cu\n");
        write(&top, "app/src/a.cu", &format!("#include \"../../common/inner/y.h\"\n{MAIN}"));
        write(&top, "app/a.o", "old");
        write(dir.path(), "elsewhere/secret.h", "");
        write(&top, "app/b.cu", "#include \"../../elsewhere/secret.h\"\n");
        let program = found(&top.join("app"));
        assert_eq!((program.format, program.cwd.as_str()), ("a project with a Makefile", "app"));
        assert_eq!(program.kernels, ["k"]);
        let Some(ProgramBuild::Folder(build)) = &program.build else { panic!("{program:?}") };
        let places: Vec<&str> = build.sent.iter().map(|(place, _)| place.as_str()).collect();
        assert_eq!(places, ["app", "common"]);
        assert!(program.assumptions.iter().any(|text| text.contains("-G")));
        // The build file itself may be named.
        assert_eq!(found(&top.join("app/Makefile")).cwd, "app");
    }

    #[test]
    fn a_folder_without_a_build_file_is_its_only_program() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path();
        write(top, "one/a.cu", MAIN);
        write(top, "one/b.cu", "__global__ void k() {}\n");
        let program = found(&top.join("one"));
        assert_eq!((program.name.as_str(), sent(&program)), ("a", vec!["a.cu"]));
        write(top, "one/c.cu", MAIN);
        let folder = top.join("one");
        let failed = find_source(folder.to_str().unwrap(), &KernelFolders::default());
        let message = failed.unwrap_err().to_string();
        assert!(message.ends_with("no build file and 2 programs: `a.cu`, `c.cu`"), "{message}");
        // Makefiles of other languages are no programs for a GPU.
        write(top, "docs/Makefile", "html:\n\tsphinx-build\n");
        assert!(read(&top.join("docs")).is_none());
    }

    #[test]
    fn of_cmake_and_make_the_named_one_builds() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "CMakeLists.txt", "project(x LANGUAGES CUDA)\n");
        write(dir.path(), "Makefile", "x: x.cu\n\tnvcc x.cu\n");
        let system = |path: PathBuf| match found(&path).build {
            Some(ProgramBuild::Folder(build)) => build.system,
            other => panic!("{other:?}"),
        };
        assert_eq!(system(dir.path().to_owned()), BuildSystem::CMake);
        assert_eq!(system(dir.path().join("Makefile")), BuildSystem::Make);
        write(dir.path(), "Makefile", "# CMAKE generated file: DO NOT EDIT!\n");
        assert_eq!(system(dir.path().to_owned()), BuildSystem::CMake);
    }

    #[test]
    fn a_program_of_one_file_brings_headers_sources_beside_them_and_files_that_it_opens() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path();
        write(top, "rgpu.toml", "");
        write(top, "Common/helper_cuda.h", "#include \"helper_string.h\"\n");
        write(top, "Common/helper_string.h", "");
        write(top, "s/app/kern.cuh", "");
        write(top, "s/app/kern.cu", "__global__ void own() {}\n#include <cublas_v2.h>\n");
        write(top, "s/app/part.cuh", "");
        write(top, "s/app/part.cu", "");
        write(top, "s/app/in.txt", "1");
        write(top, "s/app/.env", "KEY=1");
        write(
            top,
            "s/app/a.cu",
            "// nvcc -O2 -arch=sm_50 a.cu -o a\n#include <helper_cuda.h>\n#include \"kern.cuh\"\n\
             #include \"part.cuh\"\n#include \"part.cu\"\n\
             int main() { fopen(\"in.txt\", \"r\"); fopen(\".env\", \"r\"); }\n",
        );
        let program = found(&top.join("s/app/a.cu"));
        let Some(ProgramBuild::Nvcc(nvcc)) = &program.build else { panic!("{program:?}") };
        assert_eq!(nvcc.sources, ["s/app/a.cu", "s/app/kern.cu"]);
        assert_eq!(nvcc.flags, ["-O2", "-I../../Common", "-lcublas"]);
        assert_eq!(
            (program.cwd.as_str(), &program.kernels[..]),
            ("s/app", &["own".to_owned()][..])
        );
        assert_eq!(
            sent(&program),
            [
                "Common/helper_cuda.h",
                "Common/helper_string.h",
                "s/app/a.cu",
                "s/app/kern.cu",
                "s/app/kern.cuh",
                "s/app/part.cu",
                "s/app/part.cuh",
                "s/app/in.txt"
            ]
        );
        insta::assert_snapshot!(program.assumptions.join("\n"));
    }
}
