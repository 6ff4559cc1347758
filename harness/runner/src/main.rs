//! `rgpu-runner`: runs one kernel on the GPU host as a `RunnerInput` describes, and writes a
//! report.
//!
//! It is a separate program because profiling tools need a process to start, and because a crashing
//! kernel must not end anything else. It is built against an old glibc and opens libcuda at run
//! time, so that one binary starts on hosts with and without a driver.
//!
//! [`cli`] and [`input`] parse; [`host_case`] fills inputs with [`generate`]; [`jobs`] launch and
//! measure through [`cuda`] and [`library`]; [`compare`], [`sampling`] and [`rgpu_case::stats`]
//! check the results; [`report_writer`] writes the report, and [`ranges`] opens the ranges that
//! tools see. [`nvrtc`] is independent of these: it compiles a kernel on hosts without nvcc.
//!
//! Unsafe code is allowed per module, in those that call the driver or the user's libraries.

#![warn(clippy::undocumented_unsafe_blocks)]

mod abi;
mod cli;
mod compare;
mod cuda;
mod fault;
mod file;
mod generate;
mod host_case;
mod host_memory;
mod host_warnings;
mod input;
mod jobs;
mod library;
mod nvml;
mod nvrtc;
mod poison;
mod python_reference;
mod ranges;
mod report_writer;
mod sampling;

use cli::{Args, RunnerCommand};
use fault::{Fault, Result};
use jobs::Session;
use report_writer::{ReportWriter, print_progress};
use rgpu_case::{ErrorClass, RunnerJob};
use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::parse(std::env::args_os().skip(1)) {
        Ok(RunnerCommand::Help) => {
            print_progress!("{}", cli::HELP.trim_end());
            ExitCode::SUCCESS
        }
        Ok(RunnerCommand::Version) => {
            print_progress!("rgpu-runner {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Ok(RunnerCommand::Run(args)) => ExitCode::from(run(args)),
        Ok(RunnerCommand::Compile(args)) => ExitCode::from(nvrtc::run(&args)),
        Err(text) => {
            eprintln!("error: {text}\n\n{}", cli::HELP);
            ExitCode::from(ErrorClass::Usage.exit_code())
        }
    }
}

fn run(args: Args) -> u8 {
    let ranges = match ranges::Ranges::new(args.ranges.as_deref()) {
        Ok(ranges) => ranges,
        Err(fault) => {
            report_writer::print_error(&fault.0);
            return fault.class().exit_code();
        }
    };
    let report = ReportWriter::new(args.job, args.out.clone(), ranges);
    // A panic is a bug in the runner, and the report must still be written.
    let outcome =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run_job(&args, &report)));
    report.finish(outcome.unwrap_or_else(|panic| Err(from_panic(&*panic))))
}

fn run_job(args: &Args, report: &ReportWriter) -> Result<()> {
    let input = input::read(&args.input)?;
    report.set_kernel(&input.spec.kernel);
    print_progress!(
        "rgpu-runner {}: {} {}",
        env!("CARGO_PKG_VERSION"),
        args.job.name(),
        input.spec.kernel
    );
    if args.job == RunnerJob::Cpu {
        return jobs::cpu::run(&input, report);
    }
    let against = args.against.as_ref().map(|other| input::read(&other.input)).transpose()?;
    let session = Session::open(&input, report)?;
    if let (Some(input), Some(to)) = (&against, &args.against) {
        let other = jobs::pair::OtherKernel { input, out: to.out.as_deref() };
        return jobs::pair::run(&session, &other, args.clock, args.unfit);
    }
    match args.job {
        RunnerJob::Verify => jobs::verify::run(&session),
        RunnerJob::Time => jobs::time::run(&session, args.clock, args.unfit),
        RunnerJob::Once => jobs::once::run(&session),
        RunnerJob::Guard => jobs::guard::run(&session),
        RunnerJob::Cpu | RunnerJob::Pair => Ok(()), // done above
        job @ (RunnerJob::Torch | RunnerJob::Board) => Err(fault::bad_case(format!(
            "`{}` is a job of `harness.py`, not of the runner",
            job.name()
        ))),
    }
}

fn from_panic(panic: &(dyn std::any::Any + Send)) -> Fault {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    Fault::new(ErrorClass::Internal, format!("the runner panicked: {text}"))
}
