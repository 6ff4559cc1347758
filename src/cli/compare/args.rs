//! What `rgpu compare` takes.

use clap::{Args, ValueEnum};

/// Compare two runs or reports, or two kernels side by side on one GPU
///
/// The verdict is FASTER, SLOWER, SAME or AMBIGUOUS, from the 95 % interval of the ratio of the
/// median times. Runs on unlike GPUs, drivers, sizes or clock policies are refused.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(in crate::cli) struct CompareArgs {
    /// Two runs (id, prefix, latest, folder) or two report files: the base, then the new one
    #[arg(value_name = "RUN|FILE", num_args = 0..=2)]
    pub what: Vec<String>,

    /// The least effect that counts
    #[arg(long, value_name = "N%", default_value = "1%", value_parser = threshold)]
    pub threshold: f64,

    /// Exit with 1 on this verdict
    #[arg(long, value_enum, value_name = "VERDICT", value_delimiter = ',')]
    pub fail_on: Vec<FailOn>,

    /// Exit with 1 when the speedup is below this
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    pub fail_under: Option<f64>,

    /// Compare although the sides are unlike
    #[arg(long)]
    pub force: bool,
}

const EXAMPLES: &str = "\
Examples:
  rgpu compare latest~1 latest
  rgpu compare before.ncu-rep after.ncu-rep --fail-on slower";

/// A verdict that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum FailOn {
    /// SLOWER
    Slower,
    /// AMBIGUOUS
    Ambiguous,
}

/// `1%` or `0.01`, as a fraction.
fn threshold(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(number) => (number.trim(), 0.01),
        None => (text, 1.0),
    };
    let value = number.parse::<f64>().map_err(|_| "write 1% or 0.01".to_owned())? * scale;
    match value > 0.0 && value < 1.0 {
        true => Ok(value),
        false => Err("the threshold must lie above 0 and below 100 %; write 1% or 0.01".to_owned()),
    }
}

/// A positive number.
fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x > 0.0 && x.is_finite() => Ok(x),
        _ => Err("write a factor such as 1.05".to_owned()),
    }
}
