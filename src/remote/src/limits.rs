//! The time limits for what waits for a network, but for those that one kind of remote alone has,
//! which are beside its code.

use std::time::Duration;

/// Connecting to a host: name lookup, TCP, and each stage of the ssh handshake.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// `ssh -G`, which may run the user's `Match exec` commands.
pub const RESOLVE_TIMEOUT: Duration = Duration::from_secs(15);

/// One login attempt. A hardware key or an ssh-agent may wait for the user.
pub const LOGIN_TIMEOUT: Duration = Duration::from_secs(60);

/// One login through the user's own `ssh`, which may ask for a second factor.
pub const USER_SSH_TIMEOUT: Duration = Duration::from_secs(180);

/// From the start command to the agent's first line, including slow shell start-up files.
pub const AGENT_START_TIMEOUT: Duration = Duration::from_secs(60);

/// Uploading the agent's program to a host.
pub const AGENT_UPLOAD_TIMEOUT: Duration = Duration::from_secs(300);

/// A short answer from the agent.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// An answer from a platform that starts a container first and holds a request for 150 s at most.
pub const HELD_ANSWER_TIMEOUT: Duration = Duration::from_secs(170);

/// The result of a request that such a platform answers later.
pub const RESULT_TIMEOUT: Duration = Duration::from_secs(900);

/// How long the answer to a request sent before the agent's hello may take before we send a ping.
pub const EARLY_ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The answers to probes. The agent runs them one after another, each with its own limit.
pub const FACTS_TIMEOUT: Duration = Duration::from_secs(300);

/// An upload or a fetch in which no piece was confirmed.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(120);

/// How often a followed job's lease is renewed (it lasts ten minutes).
pub const LEASE_RENEWAL_INTERVAL: Duration = Duration::from_secs(15);

/// The longest pause between two attempts to reconnect; the first is one second.
pub const MAX_RECONNECT_PAUSE: Duration = Duration::from_secs(15);

/// How long to try to reconnect before rgpu gives up; the job continues on the host.
pub const RECONNECT_TIMEOUT: Duration = Duration::from_secs(600);

/// How long a closed stream may take to end.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// From a cancel to the terminal event that confirms it. The agent gives processes two seconds
/// after SIGINT and two after SIGTERM, then kills them and hashes the files made so far.
pub const CANCEL_TIMEOUT: Duration = Duration::from_secs(60);
