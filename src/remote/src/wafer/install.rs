//! Uploads the agent's program to a workspace, in pieces carried by commands.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::error::WaferError;
use super::exec::WorkspaceShell;
use crate::deploy::AgentStart;
use crate::deploy::commands::CommandReply;
use crate::http::Attempts;
use crate::mail::nonce;
use crate::{RemoteError, UserPrompt};

/// Pieces sent at the same time.
const MAX_PIECES_IN_FLIGHT: usize = 4;

/// Attempts for a piece, and the pause before the second.
const MAX_TRIES: u32 = 8;
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The limit on each of these commands.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

const DOING: &str = "sending the agent's program";

/// Stores the program in the first folder that can hold it. `host` describes the workspace.
pub(super) async fn install(
    shell: &WorkspaceShell,
    start: &Arc<AgentStart>,
    host: &str,
    user_prompt: &dyn UserPrompt,
) -> Result<(), RemoteError> {
    start.fits(host)?;
    let end = format!("end-{}", nonce());
    let lines = run_with_retries(shell, &start.choose(&end), &end).await?;
    let folder = match CommandReply::find(&lines) {
        Some(CommandReply::Into(folder)) => folder,
        Some(CommandReply::NoFolder(tried)) => return Err(RemoteError::not_installed(tried)),
        _ => return Err(RemoteError::ProtocolViolation { what: format!("{lines:?}") }),
    };
    let pieces = start.pieces()?;
    let (count, upload) = (pieces.len(), nonce());
    user_prompt.verbose(&format!("installing the agent in `{folder}`"));
    user_prompt.starting(&format!("sending the agent's program in {count} pieces"));
    let permits = Arc::new(Semaphore::new(MAX_PIECES_IN_FLIGHT));
    let mut sending = JoinSet::new();
    for (at, piece) in pieces.into_iter().enumerate() {
        let end = format!("end-{}", nonce());
        let command = start.put(&folder, &upload, at, &piece, &end)?;
        let (shell, permits) = (shell.clone(), permits.clone());
        sending.spawn(async move {
            let _permit = permits.acquire().await;
            run_with_retries(&shell, &command, &end).await
        });
    }
    while let Some(sent) = sending.join_next().await {
        sent.map_err(|e| RemoteError::LinkCut { doing: DOING, why: e.to_string() })??;
    }
    let end = format!("end-{}", nonce());
    let command = start.assemble(&folder, &upload, count, &end)?;
    // If this is repeated, it finds the finished program.
    run_with_retries(shell, &command, &end).await?;
    Ok(())
}

/// Runs a command that may be repeated, and repeats it if that may help.
async fn run_with_retries(
    shell: &WorkspaceShell,
    command: &str,
    end: &str,
) -> Result<Vec<String>, WaferError> {
    let mut attempts = Attempts::new(MAX_TRIES, FIRST_RETRY_PAUSE);
    loop {
        match shell.run(command, end, COMMAND_TIMEOUT, DOING).await {
            Err(error) if error.is_link() && attempts.next().await => {}
            done => return done,
        }
    }
}
