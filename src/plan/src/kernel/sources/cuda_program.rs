//! A CUDA C++ file with its own `main`: compiled by nvcc on the host and run.

use std::path::Path;

use super::super::cuda_source::has_main;
use super::program_files::{ProgramFiles, collect};
use super::{Found, FoundProgram, KernelSource, NvccBuild, ProgramBuild, text_of};
use crate::kernel::{KernelError, ProfileMode, name_of};

/// A CUDA C++ file with its own `main`.
pub(super) static CUDA_PROGRAM: KernelSource = KernelSource { name: "a CUDA C++ program", read };

fn read(path: &Path) -> Option<Result<Found, KernelError>> {
    let text = text_of(path, &["cu", "cpp", "cc", "cxx"])?;
    has_main(&text).then(|| program(path, &text).map(Found::Program))
}

/// The program of this source, which has a `main`.
pub(super) fn program(path: &Path, text: &str) -> Result<FoundProgram, KernelError> {
    let ProgramFiles { sources, cwd, files, options, kernels, assumptions } = collect(path, text)?;
    Ok(FoundProgram {
        format: CUDA_PROGRAM.name,
        name: name_of(path),
        path: path.to_owned(),
        command: Vec::new(),
        cwd,
        build: Some(ProgramBuild::Nvcc(NvccBuild { sources, flags: options, inputs: None })),
        files,
        kernels,
        kernel_filter: None,
        driver: None,
        is_rank: false,
        mode: ProfileMode::Nsys,
        assumptions,
    })
}
