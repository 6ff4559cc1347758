//! `rgpu-runner nvrtc`: compiles CUDA C++ for a device, on hosts without nvcc or a host compiler.
//!
//! Unlike the other jobs it has no input file, no report and needs no driver. Standard error gets
//! the compiler's log unchanged, as with nvcc.

mod args;
mod flags;
mod headers;
mod library;

pub(crate) use args::{Args, parse};

use crate::fault::{Fault, Result};
use crate::file;
use crate::report_writer::{self, print_progress};
use flags::TranslatedFlags;
use library::{Nvrtc, Program};
use rgpu_case::ErrorClass;
use std::ffi::CString;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Compiles and returns the exit status.
pub(crate) fn run(args: &Args) -> u8 {
    match compile(args) {
        Ok(()) => 0,
        Err(fault) => {
            report_writer::print_error(&fault.0);
            fault.class().exit_code()
        }
    }
}

fn compile(args: &Args) -> Result<()> {
    let usage = |text: String| Fault::new(ErrorClass::Usage, text);
    let translated = flags::translate(&args.flags).map_err(usage)?;
    let arch = architecture(args, &translated).map_err(usage)?;
    let shown = args.source.display();
    let source = std::fs::read(&args.source).map_err(|e| {
        Fault::new(ErrorClass::MissingFile, format!("cannot read the source `{shown}`: {e}"))
    })?;
    let source = c_string(source, "the source")?;
    let nvrtc = Nvrtc::open(args.library.as_deref())?;
    let [major, minor] = nvrtc.version;
    print_progress!(
        "rgpu-runner {}: NVRTC {major}.{minor}{}, {shown} for {arch}",
        env!("CARGO_PKG_VERSION"),
        nvrtc.path.as_ref().map(|path| format!(" ({})", path.display())).unwrap_or_default()
    );
    for flag in &translated.dropped {
        print_progress!("note: NVRTC does not need `{flag}`; it is left out");
    }

    let folders = headers::header_folders(&args.include, nvrtc.path.as_deref());
    let of_flags = translated.include.iter().map(PathBuf::from);
    let beside = args.source.parent().map(Path::to_path_buf);
    let searched: Vec<PathBuf> = folders.iter().cloned().chain(of_flags).chain(beside).collect();
    let headers = headers::replacement_headers(&searched);
    let name = c_string(shown.to_string().into_bytes(), "the source's name")?;
    let job =
        Compilation { nvrtc: &nvrtc, source, name, headers, folders, flags: translated.flags };

    let program = job.compile(&arch)?;
    show(&program.log());
    let cubin = args.cubin.as_ref().map(|_| program.cubin()).transpose()?;
    let mut ptx = args.ptx.as_ref().map(|_| program.ptx()).transpose()?;
    if ptx.as_ref().is_some_and(Vec::is_empty) && arch.starts_with("sm_") {
        ptx = Some(job.compile(&arch.replacen("sm_", "compute_", 1))?.ptx()?);
    }
    let nothing =
        |what: &str| Fault::new(ErrorClass::Compile, format!("NVRTC made no {what} for `{arch}`"));
    for (path, bytes, what) in [(&args.cubin, cubin, "cubin"), (&args.ptx, ptx, "PTX")] {
        let (Some(path), Some(bytes)) = (path, bytes) else { continue };
        if bytes.is_empty() {
            return Err(nothing(what));
        }
        file::write_atomically(path, &bytes).map_err(|e| {
            let text = format!("cannot write the {what} `{}`: {e}", path.display());
            Fault::new(ErrorClass::Output, text)
        })?;
    }
    Ok(())
}

/// The inputs of a compilation except the architecture.
struct Compilation<'n> {
    nvrtc: &'n Nvrtc,
    source: CString,
    name: CString,
    headers: Vec<(CString, CString)>,
    folders: Vec<PathBuf>,
    flags: Vec<String>,
}

impl Compilation<'_> {
    /// Compiles; on failure NVRTC's log goes to standard error first.
    fn compile(&self, arch: &str) -> Result<Program<'_>> {
        let first = format!("--pre-include={}", headers::FIRST_HEADER);
        let mut options = vec![format!("--gpu-architecture={arch}"), first];
        options.extend(self.flags.iter().cloned());
        // After those of the flags: folders that the user named are searched first.
        options.extend(self.folders.iter().map(|f| format!("--include-path={}", f.display())));
        let options: Vec<CString> = options
            .into_iter()
            .map(|option| c_string(option.into_bytes(), "a flag"))
            .collect::<Result<_>>()?;
        let program = Program::new(self.nvrtc, &self.source, &self.name, &self.headers)?;
        program.compile(&options).map_err(|mut fault| {
            let log = program.log();
            show(&log);
            if contains(&log, b"gpu-architecture") {
                let known = self.nvrtc.architectures().join(" ");
                fault.0.text += &format!("; `{arch}` was asked for, it knows {known}");
            }
            fault
        })?;
        Ok(program)
    }
}

/// Prints the compiler's log; a closed standard error is ignored.
fn show(log: &[u8]) {
    let end: &[u8] = match log.last() {
        None | Some(b'\n') => b"",
        Some(_) => b"\n",
    };
    let _ = std::io::stderr().write_all(&[log, end].concat());
}

/// The architecture, from the option or from a flag; both must agree.
fn architecture(args: &Args, translated: &TranslatedFlags) -> Result<String, String> {
    match (&args.arch, &translated.arch) {
        (Some(arg_arch), Some(flag)) if arg_arch != flag => {
            Err(format!("a flag asks for `{flag}`, `--arch` for `{arg_arch}`"))
        }
        (Some(arch), _) | (None, Some(arch)) => Ok(arch.clone()),
        (None, None) => Err("`--arch` is missing".to_owned()),
    }
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

fn c_string(bytes: Vec<u8>, what: &str) -> Result<CString> {
    CString::new(bytes)
        .map_err(|_| Fault::new(ErrorClass::Compile, format!("{what} holds a NUL byte")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_architecture_may_come_from_a_flag_but_not_from_two_places() {
        let args = |arch: Option<&str>| Args { arch: arch.map(str::to_owned), ..Args::default() };
        let of = |arch: Option<&str>, flag: Option<&str>| {
            let arch_flag =
                TranslatedFlags { arch: flag.map(str::to_owned), ..TranslatedFlags::default() };
            architecture(&args(arch), &arch_flag)
        };
        assert_eq!(of(Some("sm_80"), None).unwrap(), "sm_80");
        assert_eq!(of(None, Some("sm_80")).unwrap(), "sm_80");
        assert_eq!(of(Some("sm_80"), Some("sm_80")).unwrap(), "sm_80");
        assert!(of(Some("sm_80"), Some("sm_90a")).unwrap_err().contains("`sm_90a`"));
        assert!(of(None, None).is_err());
    }
}
