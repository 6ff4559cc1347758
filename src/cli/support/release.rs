//! Gives back the hosts that were requested for a command, however the command ends.
//!
//! Each command runs on one thread ([`super::app::App::block_on`]); several may run at once. So
//! each thread has its own list.

use std::cell::RefCell;
use std::sync::Arc;

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

/// Gives back the hosts of this thread's command. One more Ctrl-C ends the wait.
pub(in crate::cli) async fn release_hosts() {
    for OpenedRemote { remote, options, mut cancel } in OPENED.take() {
        let cancels_seen = cancel.request_count();
        tokio::select! {
            () = remote.release(&options) => {}
            () = cancel.wait_for_more_than(cancels_seen) => {}
        }
    }
}
