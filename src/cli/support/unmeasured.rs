//! Refuses the result of a command that was to measure on a GPU and has no number from one.

use clap::Args;
use serde::Serialize;

use super::app::App;
use super::session;
use rgpu_model::error::{ANOTHER_HOST, Exit, Failure};
use rgpu_model::{Profile, RungId};
use rgpu_remote::RemoteSpec;
use rgpu_run::config::LOCAL;

/// The code of the failure of a command that has no number from a GPU.
pub(in crate::cli) const NOT_MEASURED: &str = "not_measured";

/// What a command does that has no number from a GPU.
#[derive(Args, Clone, Copy, Debug, Default, Serialize)]
pub(in crate::cli) struct UnmeasuredArgs {
    /// Exit with 5 if nothing was measured on a GPU, on this machine without an NVIDIA driver too
    #[arg(long, conflicts_with = "allow_unmeasured")]
    pub require_gpu: bool,

    /// Exit with 0 even if nothing was measured on a GPU [default: only on this machine, if it has
    /// no NVIDIA driver]
    #[arg(long)]
    pub allow_unmeasured: bool,
}

impl UnmeasuredArgs {
    /// For a part of a command that judges the whole.
    pub(in crate::cli) const ALLOWED: Self = Self { require_gpu: false, allow_unmeasured: true };

    /// The failure of a command without a number from a GPU on `spec`, whose host has this driver;
    /// `None` if it is no failure. What was run is described before.
    pub(in crate::cli) fn failure(
        self,
        spec: &RemoteSpec,
        driver: Option<&str>,
    ) -> Option<Failure> {
        let is_bare_machine = spec.name == LOCAL && driver.is_none();
        if self.allow_unmeasured || (is_bare_machine && !self.require_gpu) {
            return None;
        }
        let what = format!("nothing was measured on a GPU of `{}`", spec.name);
        let failure = Failure::new(Exit::Tool, NOT_MEASURED, what);
        let failure = match driver {
            None => failure.cause("the host has no NVIDIA driver").hint(ANOTHER_HOST),
            Some(_) => failure
                .hint("`rgpu doctor` shows what works on this host, and why the rest does not"),
        };
        Some(failure.hint("`--allow-unmeasured` accepts that, with status 0"))
    }
}

/// The failure of a profile that has no number from a GPU. Rungs of the CPU that `at_least` names
/// are what was asked for.
pub(in crate::cli) fn not_measured(
    app: &App,
    profile: &Profile,
    at_least: Option<&RungId>,
    args: UnmeasuredArgs,
) -> Option<Failure> {
    // The check and the sanitizer measure nothing, and have a failure of their own.
    let measures = !matches!(profile.run.mode.as_str(), "verify" | "sanitizer" | "nvtx");
    let is_asked = matches!(at_least, Some(RungId::Nvtx | RungId::Cpu)) && !args.require_gpu;
    if !measures || is_asked || profile.has_gpu_number() {
        return None;
    }
    // A remote that is no longer in the settings was another host.
    let spec = session::spec(app, Some(&profile.run.remote))
        .unwrap_or_else(|_| RemoteSpec { name: profile.run.remote.clone(), ..RemoteSpec::local() });
    args.failure(&spec, profile.host.as_ref().and_then(|host| host.driver.as_deref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_without_a_driver_may_measure_nothing() {
        let status = |name: &str, driver, args: UnmeasuredArgs| {
            let spec = RemoteSpec { name: name.to_owned(), ..RemoteSpec::local() };
            args.failure(&spec, driver).map_or(0, |failure| failure.exit as u8)
        };
        let required = UnmeasuredArgs { require_gpu: true, ..UnmeasuredArgs::default() };
        let each = [UnmeasuredArgs::default(), required, UnmeasuredArgs::ALLOWED];
        let statuses = |name, driver| each.map(|args| status(name, driver, args));
        assert_eq!(statuses(LOCAL, None), [0, 5, 0]);
        assert_eq!(statuses(LOCAL, Some("580.159.04")), [5, 5, 0]);
        assert_eq!(statuses("h200", None), [5, 5, 0]);
        assert_eq!(statuses("h200", Some("580.159.04")), [5, 5, 0]);
    }
}
