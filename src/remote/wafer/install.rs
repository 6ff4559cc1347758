//! Bringing the agent's program into a workspace, in pieces that commands carry.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::error::WaferError;
use super::exec::{WorkspaceShell, nonce};
use crate::remote::deploy::AgentStart;
use crate::remote::deploy::commands::CommandReply;
use crate::remote::{RemoteError, UserPrompt};

/// Pieces under way at the same time.
const MAX_PIECES_IN_FLIGHT: usize = 4;

/// Tries of a piece, and the pauses before the second and before the last.
const MAX_TRIES: u32 = 8;
const PAUSE: Duration = Duration::from_millis(200);
const LAST_PAUSE: Duration = Duration::from_secs(2);

/// How long one of these commands may take.
const LIMIT: Duration = Duration::from_secs(60);

const DOING: &str = "sending the agent's program";

/// Puts the program into the first folder that can hold it. `host` is what the workspace says of
/// itself.
///
/// # Errors
/// It cannot run there, no folder takes it, or the link.
pub(super) async fn install(
    shell: &WorkspaceShell,
    start: &Arc<AgentStart>,
    host: &str,
    talk: &dyn UserPrompt,
) -> Result<(), RemoteError> {
    start.fits(host)?;
    let end = format!("end-{}", nonce());
    let lines = again(shell, &start.choose(&end), &end).await?;
    let folder = match CommandReply::find(&lines) {
        Some(CommandReply::Into(folder)) => folder,
        Some(CommandReply::NoFolder(tried)) => return Err(RemoteError::NoFolder { tried }),
        _ => return Err(RemoteError::Nonsense { what: format!("{lines:?}") }),
    };
    let pieces = start.pieces()?;
    let (count, upload) = (pieces.len(), nonce());
    talk.verbose(&format!("putting the agent into `{folder}` there"));
    talk.starting(&format!("sending the agent's program in {count} pieces"));
    let room = Arc::new(Semaphore::new(MAX_PIECES_IN_FLIGHT));
    let mut sending = JoinSet::new();
    for (at, piece) in pieces.into_iter().enumerate() {
        let end = format!("end-{}", nonce());
        let command = start.put(&folder, &upload, at, &piece, &end)?;
        let (shell, room) = (shell.clone(), room.clone());
        sending.spawn(async move {
            let _place = room.acquire().await;
            again(&shell, &command, &end).await
        });
    }
    while let Some(sent) = sending.join_next().await {
        sent.map_err(|e| RemoteError::LinkCut { doing: DOING, why: e.to_string() })??;
    }
    let end = format!("end-{}", nonce());
    let command = start.assemble(&folder, &upload, count, &end)?;
    // A second time finds it whole.
    again(shell, &command, &end).await?;
    Ok(())
}

/// Runs a command that may be run twice, again where that may help.
async fn again(
    shell: &WorkspaceShell,
    command: &str,
    end: &str,
) -> Result<Vec<String>, WaferError> {
    let (mut tries, mut pause) = (1, PAUSE);
    loop {
        match shell.run(command, end, LIMIT, DOING).await {
            Err(error) if error.is_link() && tries < MAX_TRIES => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LAST_PAUSE);
                tries += 1;
            }
            done => return done,
        }
    }
}
