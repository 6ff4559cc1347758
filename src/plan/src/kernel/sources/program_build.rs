//! How a program is built on the host: what its source or build file says.

use std::path::PathBuf;

/// How a program is built on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramBuild {
    /// From its sources, by nvcc.
    Nvcc(NvccBuild),
    /// By the build file of its folder.
    Folder(FolderBuild),
}

/// A program that nvcc makes of its sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NvccBuild {
    /// The places of the sources, relative to the job's working folder. The compiler runs in the
    /// folder of the first.
    pub sources: Vec<String>,
    /// Further words for nvcc, after ours.
    pub flags: Vec<String>,
    /// Digest of all that it is compiled from; `None` if that is not known here. Then it is
    /// compiled each time.
    pub inputs: Option<String>,
}

/// What reads a build file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildSystem {
    /// CMake, with a CMakeLists.txt.
    CMake,
    /// make, with a Makefile.
    Make,
}

impl BuildSystem {
    /// The name of its command.
    pub fn command(self) -> &'static str {
        match self {
            Self::CMake => "cmake",
            Self::Make => "make",
        }
    }
}

/// A program that the build file of a folder makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderBuild {
    /// What reads its build file.
    pub system: BuildSystem,
    /// The place of the folder below the job's working folder; empty: that folder itself.
    pub folder: String,
    /// What is sent by the rules of `--mount`: places below the job's working folder, and folders
    /// or files here.
    pub sent: Vec<(String, PathBuf)>,
    /// The name of the folder: of several programs, the one of this name is the one to run.
    pub name: String,
    /// The program that the user chose.
    pub target: Option<String>,
}

/// The content of a file that is sent for a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SentContent {
    /// That of a file here.
    Here(PathBuf),
    /// These bytes.
    Bytes(Vec<u8>),
}
