//! Programs that are built on the host, from what was found of them under a path.

use std::io::Read;
use std::path::{Path, PathBuf};

use rgpu_protocol::plan::Arg;
use sha2::{Digest, Sha256};

use super::{ExecError, Mount, SkippedPath, snapshot};
use crate::kernel::is_private;
use crate::kernel::sources::{FolderBuild, FoundProgram, ProgramBuild, SentContent};
use crate::tool::{BundleFile, JobFileContent, PROGRAM_PATH, Program, in_work_folder};
use rgpu_model::agent_files;
use rgpu_model::regular_file::MAX_FILE_BYTES;

/// Files up to this size are read at once, so that what is compiled is what its digest says.
const MAX_SOURCE_BYTES: u64 = 1 << 20;

/// The program that is built on the host, with these further arguments, and the paths of its
/// folders that are not sent. `None`: it is not built. `limit`: the most bytes of its folders.
///
/// # Errors
/// [`ExecError`] if its files cannot be read, or its folders are larger.
pub fn built_program(
    found: &FoundProgram,
    args: &[String],
    limit: u64,
) -> Result<Option<(Program, Vec<SkippedPath>)>, ExecError> {
    let Some(mut build) = found.build.clone() else { return Ok(None) };
    let words = found.command.iter().chain(args);
    let argv = std::iter::once(Arg::in_job(PROGRAM_PATH));
    let mut files = Vec::new();
    let mut left_out = Vec::new();
    match &mut build {
        ProgramBuild::Nvcc(nvcc) => {
            let (read, digest) = read_files(&found.files)?;
            files = read;
            nvcc.inputs = Some(digest);
        }
        ProgramBuild::Folder(folder) => {
            let sent = snapshot(&mounts(folder), limit)?;
            // What was built here is built anew there, and would keep make from it.
            let files_to_build = sent.files.into_iter().filter(|file| !is_build_product(file));
            let is_private = |file: &BundleFile| is_private_file(file, &folder.folder);
            let (private, rest) = files_to_build.partition::<Vec<_>, _>(is_private);
            files.extend(rest);
            left_out = sent.left_out;
            let why = "it looks like a private file";
            left_out.extend(private.into_iter().map(|file| SkippedPath { path: file.path, why }));
        }
    }
    let program = Program {
        name: found.name.clone(),
        argv: argv.chain(words.map(|word| Arg::text(word.as_str()))).collect(),
        files,
        cwd: in_work_folder(&found.cwd),
        build: Some(build),
        ..Program::default()
    };
    Ok(Some((program, left_out)))
}

/// The files with their places in the job's folder, and a digest of the names and contents of those
/// that were read: sources, but not large data.
fn read_files(files: &[(String, SentContent)]) -> Result<(Vec<BundleFile>, String), ExecError> {
    let mut hash = Sha256::new();
    let mut read = Vec::with_capacity(files.len());
    for (place, content) in files {
        let place = in_work_folder(place);
        let bytes = match content {
            SentContent::Bytes(bytes) => bytes.clone(),
            SentContent::Here(path) if is_large(path) => {
                read.push(BundleFile::copy(place, path));
                continue;
            }
            SentContent::Here(path) => agent_files::read(path, MAX_FILE_BYTES)
                .map_err(|source| ExecError::Unreadable { path: path.clone(), source })?,
        };
        hash.update(&place);
        hash.update([0]);
        hash.update(bytes.len().to_le_bytes());
        hash.update(&bytes);
        read.push(BundleFile::text(place, bytes));
    }
    let digest = rgpu_protocol::Digest::from_bytes(&hash.finalize().into());
    Ok((read, digest.as_str().to_owned()))
}

fn is_large(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.len() > MAX_SOURCE_BYTES)
}

fn mounts(build: &FolderBuild) -> Vec<Mount> {
    let mount = |(place, path): &(String, PathBuf)| Mount {
        from: path.clone(),
        to: place.clone(),
        link: None,
        looks_inner: false,
    };
    build.sent.iter().map(mount).collect()
}

/// Whether a file is a private one that is not sent: the user has put those in the program's own
/// folder there, which has this place. An agent may have chosen that folder for them.
fn is_private_file(file: &BundleFile, own_folder: &str) -> bool {
    let own_folder = in_work_folder(own_folder);
    let path = Path::new(&file.path);
    let inner = path.strip_prefix(&own_folder);
    let is_of_user = inner.is_ok() && agent_files::project().is_none();
    is_private(inner.unwrap_or(path)) && !is_of_user
}

/// Whether a file is what a build leaves: an object file, a program, or CMake's notes.
fn is_build_product(file: &BundleFile) -> bool {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    let is_object = name.ends_with(".o") || name.ends_with(".obj");
    let is_of_cmake = name == "CMakeCache.txt" || file.path.contains("/CMakeFiles/");
    let is_library = name.contains(".so");
    is_object || is_of_cmake || file.executable && !is_library && is_elf(&file.content)
}

fn is_elf(content: &JobFileContent) -> bool {
    match content {
        JobFileContent::Bytes(bytes) => bytes.starts_with(b"\x7fELF"),
        JobFileContent::Local(path) => begins_with_elf(path),
    }
}

fn begins_with_elf(path: &Path) -> bool {
    let mut start = [0; 4];
    let read = agent_files::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == *b"\x7fELF"
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::kernel::KernelFolders;
    use crate::kernel::find::find_source;
    use crate::kernel::sources::Found;

    fn found(path: &Path) -> FoundProgram {
        match find_source(path.to_str().unwrap(), &KernelFolders::default()).unwrap() {
            Found::Program(program) => program,
            Found::Kernel(kernel) => panic!("{kernel:?}"),
        }
    }

    fn places(program: &Program) -> Vec<&str> {
        program.files.iter().map(|file| file.path.as_str()).collect()
    }

    #[test]
    fn a_folder_is_sent_without_what_was_built_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &[u8]| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        };
        file("Makefile", b"app: a.cu\n\tnvcc a.cu\n");
        file("a.cu", b"int main() {}\n");
        file("a.o", b"old");
        file("lib/libx.so.1", b"\x7fELF");
        file("data.bin", b"\x7fELF");
        file("out/CMakeFiles/x", b"");
        for executable in ["app", "lib/libx.so.1", "run.sh"] {
            let path = dir.path().join(executable);
            if !path.exists() {
                let text: &[u8] = if executable == "app" { b"\x7fELF" } else { b"#!/bin/sh" };
                file(executable, text);
            }
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let program = found(dir.path());
        let (program, left_out) =
            built_program(&program, &["1".to_owned()], 1 << 20).unwrap().unwrap();
        let expected =
            ["Makefile", "a.cu", "data.bin", "lib/libx.so.1", "run.sh"].map(in_work_folder);
        assert_eq!(
            (places(&program), left_out.len()),
            (expected.iter().map(|p| &**p).collect(), 0)
        );
        assert_eq!((program.cwd.as_str(), program.argv.len()), ("here", 2));
        let too_big = built_program(&found(dir.path()), &[], 3);
        assert!(matches!(too_big, Err(ExecError::TooBig { .. })));
    }

    #[test]
    fn private_files_above_a_folder_that_it_names_are_not_sent() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("rgpu.toml", ""),
            ("app/Makefile", "app: a.cu ../common\n\tnvcc a.cu\n"),
            ("app/a.cu", "int main() {}\n"),
            ("app/own.key", ""),
            ("common/x.h", ""),
            ("common/server.key", ""),
            ("common/.npmrc", ""),
        ] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = found(&dir.path().join("app"));
        let (program, left_out) = built_program(&found, &[], 1 << 20).unwrap().unwrap();
        let sent = ["app/Makefile", "app/a.cu", "app/own.key", "common/x.h"].map(in_work_folder);
        assert_eq!(places(&program), sent);
        let paths: Vec<&str> = left_out.iter().map(|left| left.path.as_str()).collect();
        assert_eq!(paths, ["here/common/.npmrc", "here/common/server.key"]);
    }

    #[test]
    fn a_changed_header_changes_the_program() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("a.cu");
        fs::write(&source, "#include \"a.h\"\nint main() {}\n").unwrap();
        fs::write(dir.path().join("a.h"), "").unwrap();
        let digest = || {
            let (program, _) = built_program(&found(&source), &[], 1).unwrap().unwrap();
            assert_eq!(places(&program), ["here/a.cu", "here/a.h"]);
            match program.build {
                Some(ProgramBuild::Nvcc(nvcc)) => nvcc.inputs.unwrap(),
                build => panic!("{build:?}"),
            }
        };
        let before = digest();
        assert_eq!(digest(), before);
        fs::write(dir.path().join("a.h"), "#define N 1\n").unwrap();
        assert_ne!(digest(), before);
    }
}
