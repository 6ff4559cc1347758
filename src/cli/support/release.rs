//! Gives back the hosts that were requested for a command, however the command ends.
//!
//! Each command runs on one thread ([`super::app::App::block_on`]); several may run at once. So
//! each thread has its own list.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use rgpu_remote::{ConnectOptions, Remote};
use rgpu_run::run::CancelSignal;

/// A remote that this thread has opened.
struct OpenedRemote {
    remote: Arc<dyn Remote>,
    options: ConnectOptions,
    /// Kept, so that a signal is still handled while the host is given back.
    cancel: CancelSignal,
}

thread_local! {
    static OPENED: RefCell<Vec<OpenedRemote>> = const { RefCell::new(Vec::new()) };
}

/// Gives the host of `remote` back when this thread's command ends.
pub(in crate::cli) fn at_end(
    remote: &Arc<dyn Remote>,
    options: &ConnectOptions,
    cancel: &CancelSignal,
) {
    let opened = OpenedRemote {
        remote: Arc::clone(remote),
        options: options.clone(),
        cancel: cancel.clone(),
    };
    OPENED.with_borrow_mut(|all| all.push(opened));
}

/// A shorter wait for a host to be given back is not told, unless the user has cancelled.
const TELL_AFTER: Duration = Duration::from_secs(2);

/// Gives back the hosts of this thread's command. One more Ctrl-C ends the wait.
pub(in crate::cli) async fn release_hosts() {
    for OpenedRemote { remote, options, mut cancel } in OPENED.take() {
        let cancels_seen = cancel.request_count();
        let is_cancelled = cancels_seen > 0 && !cancel.is_output_unread();
        let tell = async {
            if remote.rented().is_some() {
                tokio::time::sleep(if is_cancelled { Duration::ZERO } else { TELL_AFTER }).await;
                let noted = if is_cancelled { "cancelled: " } else { "" };
                let name = remote.name();
                options.user_prompt.starting(&format!(
                    "{noted}gives back what was requested of `{name}`; Ctrl-C ends the wait"
                ));
            }
            std::future::pending::<()>().await
        };
        tokio::select! {
            biased;
            () = remote.release(&options) => {}
            () = cancel.wait_for_more_than(cancels_seen) => {}
            () = tell => {}
        }
    }
}
