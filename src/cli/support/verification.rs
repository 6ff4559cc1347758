//! Refuses the result of a run that had to verify something and could not.

use rgpu_model::Profile;
use rgpu_model::error::{ANOTHER_HOST, Exit, Failure};
use rgpu_model::profile::CheckVerdict;
use rgpu_model::sanitizer::SanitizerVerdict;

/// The failure of a run that had to check results on a GPU and found none: an unchecked result is
/// not a correct one.
pub(in crate::cli) fn unverified(profile: &Profile) -> Option<Failure> {
    let checks = profile.cases.iter().filter_map(|case| case.correctness.as_ref());
    let is_unchecked = match profile.run.mode.as_str() {
        "verify" => checks.into_iter().all(|c| c.verdict == CheckVerdict::Unchecked),
        "sanitizer" => profile.sanitizer.iter().all(|s| s.verdict == SanitizerVerdict::Unknown),
        _ => false,
    };
    (is_unchecked && profile.gpu.is_none()).then(|| {
        let message = format!("nothing was verified: `{}` has no working GPU", profile.run.remote);
        Failure::new(Exit::Host, "no_gpu", message).hint(ANOTHER_HOST)
    })
}
