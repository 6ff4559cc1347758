//! The command line of `rgpu-runner nvrtc`.

use std::ffi::OsString;
use std::path::PathBuf;

/// Source, output and options of a compilation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Args {
    pub(super) source: PathBuf,
    /// `sm_90a` or `compute_90a`; when absent, a flag must name it.
    pub(super) arch: Option<String>,
    pub(super) cubin: Option<PathBuf>,
    pub(super) ptx: Option<PathBuf>,
    pub(super) include: Vec<PathBuf>,
    pub(super) library: Option<PathBuf>,
    /// The compiler flags in nvcc's spelling.
    pub(super) flags: Vec<String>,
}

/// Parses the arguments after the word `nvrtc`. The error is one line for the user.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Args, String> {
    let mut args = args.into_iter();
    let mut parsed = Args::default();
    while let Some(arg) = args.next() {
        let option = arg.to_string_lossy().into_owned();
        let mut value = || args.next().ok_or_else(|| format!("`{option}` needs a value"));
        match option.as_str() {
            "--source" => parsed.source = value()?.into(),
            "--arch" => parsed.arch = Some(text(value()?)?),
            "--cubin" => parsed.cubin = Some(value()?.into()),
            "--ptx" => parsed.ptx = Some(value()?.into()),
            "--include" => parsed.include.push(value()?.into()),
            "--library" => parsed.library = Some(value()?.into()),
            "--" => {
                parsed.flags = args.by_ref().map(text).collect::<Result<_, _>>()?;
            }
            _ => return Err(format!("unknown argument `{option}`; flags come after `--`")),
        }
    }
    if parsed.source.as_os_str().is_empty() {
        return Err("`--source` is missing".to_owned());
    }
    if parsed.cubin.is_none() && parsed.ptx.is_none() {
        return Err("neither `--cubin` nor `--ptx` is given: nothing to write".to_owned());
    }
    Ok(parsed)
}

fn text(word: OsString) -> Result<String, String> {
    word.into_string().map_err(|word| format!("`{}` is not UTF-8", word.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Args, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn everything_after_two_dashes_is_for_the_compiler() {
        let args = parse_line(
            "--source k.cu --cubin k.cubin --include a --include b -- -lineinfo --arch x",
        )
        .unwrap();
        assert_eq!(args.flags, ["-lineinfo", "--arch", "x"]);
        assert_eq!(args.include, [PathBuf::from("a"), PathBuf::from("b")]);
        assert_eq!(args.arch, None);
    }

    #[test]
    fn each_mistake_names_the_word() {
        for (line, word) in [
            ("--cubin a", "`--source`"),
            ("--source a", "`--cubin`"),
            ("--source a --ptx", "`--ptx`"),
            ("--source a --ptx b -lineinfo", "`-lineinfo`"),
        ] {
            assert!(parse_line(line).unwrap_err().contains(word), "{line}");
        }
    }
}
