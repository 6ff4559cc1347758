//! Compilers that are fetched on the user's order: asked for once a remote, remembered after that.

use std::io::{BufRead, Write};
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::cli::app::App;
use crate::cli::session::is_local;
use crate::error::{Exit, Failure, Result};
use crate::remote::RemoteSpec;
use crate::store::atomic;
use crate::tool::{NVCC, Wheels, looks_again};

/// Whether the wheels of a DSL may be fetched to this remote: `--yes`, or an answer once given.
///
/// # Errors
/// The user says no, or cannot be asked.
pub(super) fn environment(app: &App, spec: &RemoteSpec, wheels: &Wheels, yes: bool) -> Result<()> {
    let kept = kept(app, spec, wheels);
    if kept.is_file() {
        return Ok(());
    }
    if !yes && !ask(app, spec, wheels) {
        let place = place(spec);
        return Err(Failure::new(
            Exit::Config,
            "not_fetched",
            format!("{} is not {place}, and may not be fetched without a word", wheels.title),
        )
        .hint(format!(
            "`--yes` fetches it once: about {} MB of pinned wheels into rgpu's cache {place}",
            wheels.megabytes
        )));
    }
    remember(&kept);
    Ok(())
}

/// Whether nvcc's wheels may be fetched, where nothing else compiles; `device`: all that is wanted
/// is code of the GPU.
///
/// # Errors
/// What said that there is no compiler, with what to do.
pub(super) fn nvcc(app: &App, spec: &RemoteSpec, device: bool, failure: &Failure) -> Result<()> {
    let kept = kept(app, spec, &NVCC);
    if kept.is_file() || ask(app, spec, &NVCC) {
        remember(&kept);
        return Ok(());
    }
    let mut failure = failure.clone();
    failure.hints.clear();
    let mut failure = failure.hint(format!(
        "`--yes` fetches {} once: about {} MB of pinned wheels into rgpu's cache {}; it needs python3 and a C++ compiler",
        NVCC.title, NVCC.megabytes, place(spec)
    ));
    failure = match (is_local(spec), device) {
        (true, true) => failure.hint(
            "or install the CUDA toolkit, or NVRTC by `cargo xtask setup` in rgpu's source tree",
        ),
        (true, false) => failure
            .hint("or install the CUDA toolkit; NVRTC is not enough for a source with host code"),
        (false, _) => failure
            .hint("or compile here, with `--remote local`: that needs no GPU")
            .hint(looks_again(&spec.name)),
    };
    Err(failure)
}

/// Whether the user once wanted nvcc's wheels there.
pub(in crate::cli) fn wants_nvcc(app: &App, spec: &RemoteSpec) -> bool {
    kept(app, spec, &NVCC).is_file()
}

/// Remembers that the user wanted nvcc's wheels there.
pub(super) fn wanted_nvcc(app: &App, spec: &RemoteSpec) {
    remember(&kept(app, spec, &NVCC));
}

fn place(spec: &RemoteSpec) -> String {
    if is_local(spec) { "on this machine".to_owned() } else { format!("on `{}`", spec.name) }
}

/// The file that says that the user wanted these wheels there.
fn kept(app: &App, spec: &RemoteSpec, wheels: &Wheels) -> PathBuf {
    let what = format!("{}\n{}", spec.url, wheels.environment().requirements.join("\n"));
    let digest = rgpu_protocol::Digest::from_bytes(&Sha256::digest(what.as_bytes()).into());
    app.cache.join("fetched").join(&digest.as_str()[..24])
}

fn remember(kept: &std::path::Path) {
    // Where it cannot be kept the user is asked again.
    let _ = atomic::write(kept, b"");
}

fn ask(app: &App, spec: &RemoteSpec, wheels: &Wheels) -> bool {
    if app.global.json || !app.attended() {
        return false;
    }
    let _ = write!(
        std::io::stderr().lock(),
        "{} is fetched once: about {} MB of pinned wheels into rgpu's cache {}. Go on? [y/N] ",
        wheels.title,
        wheels.megabytes,
        place(spec)
    );
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}
