//! State shared by all requests.

use std::path::PathBuf;

use crate::mail::Keepers;
use crate::request_guard::RequestGuard;

pub(crate) struct State {
    pub(crate) request_guard: RequestGuard,
    pub(crate) keepers: Keepers,
}

impl State {
    /// Creates the state. If `relay_socket` is given, the agent behind it carries out the jobs.
    pub(crate) fn new(request_guard: RequestGuard, relay_socket: Option<PathBuf>) -> Self {
        Self { request_guard, keepers: Keepers::new(relay_socket) }
    }
}
