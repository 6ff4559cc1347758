//! Asks whether a compiler may be fetched to a remote, and remembers the consent per remote.

#![expect(clippy::disallowed_methods, reason = "rgpu's own cache")]

use std::path::PathBuf;

use super::app::App;
use super::session::is_local;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::tool::{BuildOptions, NVCC, Wheels, probe_again_hint};
use rgpu_remote::RemoteSpec;
use rgpu_run::store::atomic;

/// A consent that this command has just recorded.
#[must_use]
pub(in crate::cli) struct NewConsent(PathBuf);

impl NewConsent {
    /// Forgets the consent: the user stopped what it was for.
    pub(in crate::cli) fn revoke(self) {
        // A file that stays only means that the user is not asked again.
        let _ = std::fs::remove_file(self.0);
    }
}

/// Makes sure that a DSL's wheels may be fetched to this remote: by `--yes` or by an earlier
/// answer. The result is `None` if it was an earlier one.
pub(in crate::cli) fn require_wheel_consent(
    app: &App,
    spec: &RemoteSpec,
    wheels: &Wheels,
    yes: bool,
) -> Result<Option<NewConsent>> {
    let consent_file = consent_file(app, spec, wheels);
    if consent_file.is_file() {
        return Ok(None);
    }
    if !yes && !ask(app, spec, wheels) {
        let host_phrase = host_phrase(spec);
        return Err(Failure::new(
            Exit::Config,
            "not_fetched",
            format!(
                "{} is not installed {host_phrase}, and is only fetched with your consent",
                wheels.title
            ),
        )
        .hint(format!(
            "`--yes` fetches it once: {} of pinned wheels into rgpu's cache {host_phrase}",
            wheels.size()
        )));
    }
    save_consent(&consent_file);
    Ok(Some(NewConsent(consent_file)))
}

/// Makes sure that nvcc's wheels may be fetched, after `failure` said that there is no compiler.
/// `device`: only device code is compiled.
pub(in crate::cli) fn require_nvcc_consent(
    app: &App,
    spec: &RemoteSpec,
    device: bool,
    failure: &Failure,
) -> Result<Option<NewConsent>> {
    let consent_file = consent_file(app, spec, &NVCC);
    if consent_file.is_file() {
        return Ok(None);
    }
    if ask(app, spec, &NVCC) {
        save_consent(&consent_file);
        return Ok(Some(NewConsent(consent_file)));
    }
    let mut failure = failure.clone();
    failure.hints.clear();
    let mut failure = failure.hint(format!(
        "`--yes` fetches {} once: {} of pinned wheels into rgpu's cache {}",
        NVCC.title,
        NVCC.size(),
        host_phrase(spec)
    ));
    failure = match (is_local(spec), device) {
        (true, true) => failure.hint("or install the CUDA toolkit, or NVRTC"),
        (true, false) => failure
            .hint("or install the CUDA toolkit; NVRTC is not enough for a source with host code"),
        (false, _) => failure
            .hint("or compile here, with `--remote local`: that needs no GPU")
            .hint(probe_again_hint(&spec.name)),
    };
    Err(failure)
}

/// Whether the user has agreed to nvcc's wheels on this remote.
pub(in crate::cli) fn wants_nvcc(app: &App, spec: &RemoteSpec) -> bool {
    consent_file(app, spec, &NVCC).is_file()
}

/// Lets a kernel's build use nvcc's wheels where the user agreed to them: on its remote, and on
/// this machine.
pub(in crate::cli) fn allow_agreed_nvcc(app: &App, spec: &RemoteSpec, options: &mut BuildOptions) {
    options.fetch |= wants_nvcc(app, spec);
    options.fetch_here = wants_nvcc(app, &RemoteSpec::local());
}

/// Remembers that the user agreed to nvcc's wheels on this remote.
pub(in crate::cli) fn save_nvcc_consent(app: &App, spec: &RemoteSpec) {
    save_consent(&consent_file(app, spec, &NVCC));
}

fn host_phrase(spec: &RemoteSpec) -> String {
    if is_local(spec) { "on this machine".to_owned() } else { format!("on `{}`", spec.name) }
}

/// The file whose existence records the consent.
fn consent_file(app: &App, spec: &RemoteSpec, wheels: &Wheels) -> PathBuf {
    let key = format!("{}\n{}", spec.url, wheels.environment().requirements.join("\n"));
    let digest = rgpu_protocol::Digest::sha256(key.as_bytes());
    app.cache.join("fetched").join(&digest.as_str()[..24])
}

fn save_consent(consent_file: &std::path::Path) {
    // If it cannot be written, the user is asked again next time.
    let _ = atomic::write(consent_file, b"");
}

fn ask(app: &App, spec: &RemoteSpec, wheels: &Wheels) -> bool {
    app.agrees(&format!(
        "Fetch {}, {}, into rgpu's cache {}?",
        wheels.title,
        wheels.size(),
        host_phrase(spec)
    ))
}
