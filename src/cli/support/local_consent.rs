//! Asks before this machine runs what somebody else may have written: a downloaded problem with its
//! submission, or the program of a project's rgpu.toml. A GPU host is there for such things, and
//! this machine is only what remains where none is set.

use super::app::App;
use super::session::{self, is_local};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_remote::RemoteSpec;
use rgpu_run::config::Origin;

/// Makes sure that `what` may run if it runs on this machine: the user typed `--remote local`, set
/// it as default in settings of their own, or says yes. `typed`: the remote that was typed.
pub(in crate::cli) fn require(app: &App, typed: Option<&str>, what: &str) -> Result<()> {
    require_for(app, &session::spec(app, typed)?, typed, what)
}

/// As [`require`], for this remote.
pub(in crate::cli) fn require_for(
    app: &App,
    spec: &RemoteSpec,
    typed: Option<&str>,
    what: &str,
) -> Result<()> {
    let origin = &app.config.default_remote.origin;
    let is_own_remote = app.config.remotes.contains_key(&spec.name);
    let is_chosen =
        typed.is_some() || is_own_remote || matches!(origin, Origin::Env(_) | Origin::User(_));
    if is_chosen || !is_local(spec) {
        return Ok(());
    }
    let text = format!("{what} would run on this machine, with your rights");
    if app.agrees(&format!("{text}. Run it here?")) {
        return Ok(());
    }
    Err(Failure::new(Exit::Usage, "not_confirmed", text)
        .hint("`--remote NAME` runs it on a GPU host; `rgpu remote add` adds one")
        .hint("`--remote local` runs it here: read it first"))
}
