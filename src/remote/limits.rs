//! The time limits of everything that waits for a network. Each has a name, so that an error can
//! say which one ran out and a reader can find what it guards.

use std::time::Duration;

/// Reaching a host: name lookup, TCP, and each stage of the ssh handshake.
pub const CONNECT: Duration = Duration::from_secs(15);

/// `ssh -G`, which may run the user's `Match exec` commands.
pub const RESOLVE: Duration = Duration::from_secs(15);

/// One try to log in, which a hardware key or an ssh-agent may hold up for its user.
pub const LOGIN: Duration = Duration::from_secs(60);

/// The same through the user's own `ssh`, which may ask its user for a second factor.
pub const OWN_SSH: Duration = Duration::from_secs(180);

/// From the start command to the agent's first line: slow start-up files of shells included.
pub const AGENT_START: Duration = Duration::from_secs(60);

/// Sending the agent's own program to a host.
pub const AGENT_UPLOAD: Duration = Duration::from_secs(300);

/// A short answer of the agent.
pub const ANSWER: Duration = Duration::from_secs(60);

/// An answer of a platform that starts a container for it and ends what it holds at 150 s.
pub const HELD_ANSWER: Duration = Duration::from_secs(170);

/// The result of a request that such a platform put off.
pub const RESULT: Duration = Duration::from_secs(900);

/// How long the answer to what was said before the agent had spoken may take before it is asked
/// whether it has heard.
pub const EARLY_ANSWER: Duration = Duration::from_secs(2);

/// The answers to probes: each has a limit of its own, the agent runs them one after another.
pub const FACTS: Duration = Duration::from_secs(300);

/// An upload or a fetch of which not one piece was confirmed.
pub const STALL: Duration = Duration::from_secs(120);

/// How often a followed job's lease is renewed (it lasts ten minutes).
pub const LEASE_RENEWAL: Duration = Duration::from_secs(15);

/// The longest pause between two tries to reach a host again; the first is a second long.
pub const BACK_OFF: Duration = Duration::from_secs(15);

/// How long a cut link is tried again before the job is left to itself.
pub const RECONNECT: Duration = Duration::from_secs(600);

/// How long a stream may take to end once it was closed.
pub const CLOSE: Duration = Duration::from_secs(5);

/// From a cancel to the terminal event that confirms it. The agent gives what it stops six seconds,
/// and hashes what was made until then.
pub const CANCEL: Duration = Duration::from_secs(60);
