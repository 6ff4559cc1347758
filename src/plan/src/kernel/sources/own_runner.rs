//! Formats that have a runner of their own, which rgpu does not replace: their users are told what
//! to type.

use std::path::Path;

use super::{Found, KernelSource, text_of};
use crate::kernel::KernelError;
use rgpu_model::agent_files;
use rgpu_model::error::shell_word;
use rgpu_model::regular_file::MAX_TOML_BYTES;

/// A format with a runner of its own.
pub(super) static OWN_RUNNER: KernelSource =
    KernelSource { name: "a format with its own runner", read };

fn read(path: &Path) -> Option<Result<Found, KernelError>> {
    let (format, command) = of_file(path).or_else(|| of_folder(path))?;
    Some(Err(KernelError::OwnRunner { path: path.to_owned(), format, command }))
}

/// The format of a file and the command to type.
fn of_file(path: &Path) -> Option<(&'static str, String)> {
    let word = shell_word(path.display());
    if text_of(path, &["mojo"]).is_some() {
        return Some((
            "a Mojo program",
            format!("`rgpu profile --mount {word}:app.mojo -- mojo run app.mojo`"),
        ));
    }
    let name = path.file_name()?.to_str()?;
    if matches!(name, "environment.yml" | "environment.yaml") && path.is_file() {
        return Some((
            "an environment of conda",
            format!(
                "`rgpu exec --mount {word}:environment.yml -- conda env create -f environment.yml`, \
                 then `rgpu profile -- conda run -n NAME python3 FILE.py`"
            ),
        ));
    }
    let text = text_of(path, &["cu", "cpp", "cc", "cxx"])?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = shell_word(folder.unwrap_or(Path::new(".")).display());
    if text.contains("NVBENCH_BENCH") {
        return Some((
            "a benchmark of nvbench",
            format!(
                "its folder builds it: `rgpu profile {folder} --target NAME -- --benchmark NAME`"
            ),
        ));
    }
    if text.contains("<benchmark/benchmark.h>") || text.contains("\"benchmark/benchmark.h\"") {
        return Some((
            "a benchmark of Google Benchmark",
            format!(
                "its folder builds it: `rgpu profile {folder} --target NAME -- \
                 --benchmark_filter=NAME`"
            ),
        ));
    }
    None
}

/// The format of a folder and the command to type.
fn of_folder(path: &Path) -> Option<(&'static str, String)> {
    if !path.is_dir() {
        return None;
    }
    let build = agent_files::read_to_string(&path.join("build.toml"), MAX_TOML_BYTES);
    if build.is_ok_and(|text| text.contains("[kernel.")) {
        return Some((
            "a package of Hugging Face kernels",
            "`rgpu profile -- python3 -m kernels benchmark OWNER/NAME`".to_owned(),
        ));
    }
    let has = |name: &str| path.join(name).is_file();
    if has("include/cutlass/cutlass.h") && has("tools/profiler/CMakeLists.txt") {
        return Some((
            "a checkout of CUTLASS",
            "build `cutlass_profiler` on the host for the kernels that you want \
             (`-DCUTLASS_LIBRARY_KERNELS=…`), then `rgpu profile -- /PATH/cutlass_profiler \
             --operation=Gemm --m=4096 --n=4096 --k=4096`"
                .to_owned(),
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_with_runners_of_their_own_are_named_with_what_to_type() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        };
        file("hf/build.toml", "[general]\nname = \"x\"\n[kernel.x]\n");
        file("cutlass/include/cutlass/cutlass.h", "");
        file("cutlass/tools/profiler/CMakeLists.txt", "");
        let mut told = Vec::new();
        for path in [
            file("a.mojo", "fn main(): pass"),
            file("environment.yml", "name: x"),
            file("b.cu", "#include <nvbench/nvbench.cuh>\nNVBENCH_BENCH(x);"),
            file("c.cc", "#include <benchmark/benchmark.h>\nBENCHMARK_MAIN();"),
            dir.path().join("hf"),
            dir.path().join("cutlass"),
        ] {
            let Some(Err(error)) = read(&path) else { panic!("{path:?}") };
            let failure = rgpu_model::error::Failure::from(error);
            told.push(failure.to_string());
        }
        let text = told.join("\n").replace(&dir.path().display().to_string(), "<dir>");
        insta::assert_snapshot!(text);
        assert!(read(&file("d.cu", "int main() {}")).is_none());
        assert!(read(dir.path()).is_none());
    }
}
