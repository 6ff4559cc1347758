//! The command line: `rgpu-runner CASE.json JOB [options]`, and `rgpu-runner nvrtc …`.

use crate::nvrtc;
use rgpu_case::RunnerJob;
use std::ffi::OsString;
use std::path::PathBuf;

/// The text of `--help`.
pub(crate) const HELP: &str = "\
usage: rgpu-runner CASE.json verify|time|once|guard|cpu|pair [options]
       rgpu-runner nvrtc --source FILE [--arch ARCH] [--cubin FILE] [--ptx FILE]
                         [--include DIR]... [--library PATH] [-- FLAGS...]

  verify          compare the outputs with the reference, and two calls with each other
  time            measure
  once            warm up, then launch once per case inside the range `timed`
  guard           launch between canaries, on poisoned outputs
  cpu             no driver: run and time the reference on the CPU
  pair            measure against the kernel of another input, timed calls interleaved a b b a
  nvrtc           no driver: compile CUDA C++ for a device; flags as for nvcc

  --out FILE      write the report (JSON); there from the start, replaced as the job goes on
  --against CASE  the other runner input, for `pair`
  --other FILE    write the report of the other input, for `pair`
  --ranges FILE   log the NVTX ranges (JSON lines)
  --strict        end with an error on a host that is not fit to measure on; the host is checked
                  before any timing, and again where the GPU is hot before a later case
  --host-clock    time with the host's clock instead of CUDA events
  --version

exit status: 0 done; 1 wrong result; 2 usage; 3 bad case or missing file; 4 no driver; 5 module or
library does not load; 6 launch refused or out of memory; 7 illegal access or crash; 8 host entry
failed; 9 reference failed; 10 guard found something; 11 host unfit (--strict); 12 other CUDA
error; 13 output not writable; 14 the code does not compile; 15 no NVRTC; 70 a defect of the runner
";

/// Options of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Args {
    pub(crate) input: PathBuf,
    pub(crate) job: RunnerJob,
    pub(crate) out: Option<PathBuf>,
    pub(crate) ranges: Option<PathBuf>,
    pub(crate) unfit: UnfitHost,
    pub(crate) clock: Clock,
    /// Present only for `pair`.
    pub(crate) against: Option<OtherInput>,
}

/// The other runner input of `pair` and the path of its report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OtherInput {
    pub(crate) input: PathBuf,
    pub(crate) out: Option<PathBuf>,
}

/// Reaction to a host that is not fit for measuring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnfitHost {
    /// Print warnings, and measure.
    Warn,
    /// Stop: before any timing, or before a later case if the GPU is too hot by then.
    Refuse,
}

/// The clock that measures under `time`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    Events,
    Host,
}

/// The command that the arguments select.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RunnerCommand {
    Run(Args),
    Compile(nvrtc::Args),
    Help,
    Version,
}

/// Parses the arguments after the program's name. The error is one line for the user.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<RunnerCommand, String> {
    let mut args = args.into_iter().peekable();
    if args.next_if(|arg| arg == "nvrtc").is_some() {
        return match args.peek().and_then(|arg| arg.to_str()) {
            Some("--help" | "-h") => Ok(RunnerCommand::Help),
            _ => nvrtc::parse(args).map(RunnerCommand::Compile),
        };
    }
    let (mut input, mut job, mut out, mut ranges) = (None, None, None, None);
    let (mut unfit, mut clock) = (UnfitHost::Warn, Clock::Events);
    let (mut against, mut other) = (None, None);
    while let Some(arg) = args.next() {
        let mut file = |option: &str| {
            args.next().map(PathBuf::from).ok_or_else(|| format!("`{option}` needs a file"))
        };
        match arg.to_str() {
            Some("--help" | "-h") => return Ok(RunnerCommand::Help),
            Some("--version") => return Ok(RunnerCommand::Version),
            Some("--out") => out = Some(file("--out")?),
            Some("--ranges") => ranges = Some(file("--ranges")?),
            Some("--against") => against = Some(file("--against")?),
            Some("--other") => other = Some(file("--other")?),
            Some("--strict") => unfit = UnfitHost::Refuse,
            Some("--host-clock") => clock = Clock::Host,
            Some(option) if option.starts_with('-') => {
                return Err(format!("unknown option `{option}`"));
            }
            _ if input.is_none() => input = Some(PathBuf::from(arg)),
            Some(word) if job.is_none() => {
                job = Some(job_named(word).ok_or_else(|| {
                    format!("unknown job `{word}`; there are `verify`, `time`, `once`, `guard`, `cpu` and `pair`")
                })?);
            }
            _ => return Err(format!("one argument too many: `{}`", arg.to_string_lossy())),
        }
    }
    let input = input.ok_or("the runner input is missing")?;
    let job = job.ok_or("the job is missing")?;
    let against = match (job, against) {
        (RunnerJob::Pair, None) => return Err("`pair` needs `--against CASE`".to_owned()),
        (RunnerJob::Pair, Some(input)) => Some(OtherInput { input, out: other }),
        (_, None) if other.is_none() => None,
        _ => return Err(format!("`--against` and `--other` are for `pair`, not `{}`", job.name())),
    };
    Ok(RunnerCommand::Run(Args { input, job, out, ranges, unfit, clock, against }))
}

fn job_named(word: &str) -> Option<RunnerJob> {
    [
        RunnerJob::Verify,
        RunnerJob::Time,
        RunnerJob::Once,
        RunnerJob::Guard,
        RunnerJob::Cpu,
        RunnerJob::Pair,
    ]
    .into_iter()
    .find(|job| job.name() == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(line: &str) -> Result<RunnerCommand, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn options_may_stand_anywhere() {
        let Ok(RunnerCommand::Run(args)) =
            parse_words("--out r.json case.json --strict time --ranges l --host-clock")
        else {
            panic!("refused")
        };
        assert_eq!(
            (args.job, args.unfit, args.clock),
            (RunnerJob::Time, UnfitHost::Refuse, Clock::Host)
        );
        assert_eq!(args.out, Some("r.json".into()));
    }

    #[test]
    fn each_mistake_names_the_word() {
        for (line, word) in [
            ("case.json run", "`run`"),
            ("case.json", "job"),
            ("", "runner input"),
            ("case.json time --fast", "`--fast`"),
            ("case.json time --out", "`--out`"),
            ("case.json time again", "`again`"),
            ("case.json pair", "`--against CASE`"),
            ("case.json time --against b.json", "`pair`"),
        ] {
            assert!(parse_words(line).unwrap_err().contains(word), "{line}");
        }
    }

    #[test]
    fn the_help_lists_every_exit_status() {
        use rgpu_case::ErrorClass::*;
        for class in [
            Usage,
            BadCase,
            MissingFile,
            NoDriver,
            Load,
            OutOfMemory,
            Launch,
            IllegalAccess,
            Crash,
            HostEntry,
            Reference,
            WrongResult,
            GuardFound,
            HostUnfit,
            Cuda,
            Output,
            Compile,
            NoCompiler,
            Internal,
        ] {
            assert!(HELP.contains(&format!(" {} ", class.exit_code())), "{class:?}");
        }
    }
}
