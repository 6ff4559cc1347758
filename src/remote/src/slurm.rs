//! A cluster that Slurm manages: each run gets a compute node as a job of Slurm.
//!
//! The user's ssh reaches the login node. An agent there runs `sbatch`, `squeue`, `scontrol`,
//! `srun` and `scancel`, and nothing else: sites forbid work on login nodes, and may end what stays
//! there.
//!
//! A job of Slurm only holds a node. Its batch script starts the agent as a holder
//! (`rgpu-agent hold`), because Slurm ends every process that a step leaves behind, and supervisors
//! must outlive their connection. The stream to an agent on the node is
//! `srun --overlap --jobid=N` in a channel of the ssh connection, with a small process that passes
//! bytes to the holder. From there on everything is as over ssh: facts, plans, cut links,
//! cancelling.
//!
//! Login and compute nodes share a folder, which has the agent, the jobs and their results. So the
//! results of a job whose allocation has ended are still there, and an agent on the login node
//! hands them out. It takes no plans. Only Slurm tells whether an allocation lives, never a file: a
//! run is taken to the login node only after Slurm has said that its allocation is over.
//!
//! A job of several nodes (`--nodes`) is held by its first one, where the batch script runs. The
//! plan itself starts the program on all nodes, with `srun`.
//!
//! Nothing runs twice. A job of Slurm is named after its run and submitted behind a folder of that
//! name, which only one request can make. It is never requeued. Nothing is left behind: the end of
//! a command ends its allocation, and without a client an allocation ends once it is idle.
//!
//! | module | contents |
//! |---|---|
//! | `settings` | the remote's settings |
//! | `login` | Slurm's programs on the login node |
//! | `job`, `error` | the words of Slurm and what they mean |
//! | `script` | what is submitted |
//! | `allocation` | submits, finds, waits for and ends a job of Slurm |

mod allocation;
mod error;
mod job;
mod login;
mod script;
pub mod settings;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as SyncMutex, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::client::StreamOpener;
use super::deploy::AgentStart;
use super::mail::nonce;
use super::stream::AgentStream;
use super::{
    AddressFlag, ConnectOptions, HostUse, ReconnectPolicy, Remote, RemoteError, RemoteKind,
    RemoteSpec, Rental, RentedRemote, Session, ssh,
};
use allocation::{Allocation, AllocationRequest, AllocationState};
pub use error::SlurmError;
use job::JobInfo;
use login::LoginNode;
use settings::{Settings, login_spec};

/// Remotes of kind `slurm`: a cluster behind its login node.
pub const KIND: RemoteKind = RemoteKind {
    scheme: "slurm",
    form: "`slurm` with `--login ssh://[user@]host[:port]`",
    has_many_hosts: true,
    what: "a cluster of Slurm",
    heading: "A Slurm cluster",
    example: "slurm --login ssh://user@login",
    address: Some(AddressFlag { setting: settings::LOGIN, address: settings::address }),
    settings: settings::ALL,
    open,
};

/// How long an allocation that a command no longer needs may take to be given back.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(20);

/// How long the holder on a running node may take to start: files may appear there late.
const HOLDER_TIMEOUT: Duration = Duration::from_secs(330);

/// Longest part of a job's name that comes from a run or a remote.
const MAX_NAME_CHARS: usize = 120;

fn open(spec: &RemoteSpec) -> Result<Box<dyn Remote>, RemoteError> {
    let settings = Settings::read(spec)?;
    Ok(Box::new(Slurm {
        spec: spec.clone(),
        settings,
        state: Mutex::default(),
        end: SyncMutex::default(),
        is_kept: AtomicBool::new(false),
    }))
}

/// The remote for one cluster.
struct Slurm {
    spec: RemoteSpec,
    settings: Settings,
    state: Mutex<State>,
    /// How the allocation ended, once that is known.
    end: SyncMutex<Option<SlurmError>>,
    /// Whether a job goes on in the allocation after this command.
    is_kept: AtomicBool,
}

#[derive(Default)]
struct State {
    login: Option<LoginNode>,
    /// The allocation of this command.
    allocation: Option<Allocation>,
    /// The name of the one that ends with this command, if it may exist.
    own_name: Option<String>,
    queued_since: Option<Instant>,
    /// When the user no longer waits for a node.
    deadline: Option<Instant>,
    /// Whether an agent on the node has answered.
    has_connected: bool,
}

impl State {
    /// The error of a wait for a node that is over, if it is.
    fn queue_timeout(&self, limit: Option<Duration>) -> Option<SlurmError> {
        let is_over = self.deadline.is_some_and(|deadline| deadline <= Instant::now());
        let limit = limit.filter(|_| is_over)?;
        let reason = "Slurm's programs on the login node do not answer".to_owned();
        Some(match &self.allocation {
            Some(Allocation { id, .. }) => {
                SlurmError::QueueTimeout { job: id.clone(), limit, reason }
            }
            None => SlurmError::NotSubmitted { limit },
        })
    }
}

impl Slurm {
    /// The name of the allocation that `rgpu remote up` keeps. No run has such a name.
    fn warm_name(&self) -> String {
        job_name("rgpu-up+", &self.spec.name)
    }

    /// The login node, as a host whose agent hands out results only. `ended_run`: the run whose
    /// jobs have surely ended.
    fn results_spec(&self, ended_run: &str) -> RemoteSpec {
        let Settings { folder, login, .. } = &self.settings;
        RemoteSpec {
            via: vec![
                "env".to_owned(),
                format!("RGPU_AGENT_HOME={folder}"),
                format!("RGPU_AGENT_RESULTS={ended_run}"),
            ],
            agent_folder: Some(folder.clone()),
            ..login_spec(&self.spec, login)
        }
    }

    /// The first node of an allocation, through `srun`. Its batch script runs there.
    fn node_spec(&self, allocation: &Allocation, info: &JobInfo, srun: &str) -> RemoteSpec {
        let Settings { folder, login, .. } = &self.settings;
        let job = format!("--jobid={}", allocation.id);
        let holder = script::folder(folder, &allocation.name);
        let reach = format!("RGPU_AGENT_REACH={holder}");
        let srun = [srun, &job, "--overlap", "--unbuffered", "--nodes=1", "--ntasks=1"];
        let first = info.has_several_nodes().then_some("--relative=0");
        let via = srun.into_iter().chain(first).chain(["--mpi=none", "--quiet", "env", &reach]);
        RemoteSpec {
            via: via.map(str::to_owned).collect(),
            agent_folder: Some(folder.clone()),
            ..login_spec(&self.spec, login)
        }
    }

    /// The login node; connects if necessary.
    async fn login<'a>(
        &self,
        state: &'a mut State,
        options: &ConnectOptions,
    ) -> Result<&'a mut LoginNode, RemoteError> {
        if !state.login.as_ref().is_some_and(LoginNode::is_usable) {
            state.login = None;
            let mut session = (ssh::KIND.open)(&self.results_spec(""))?.connect(options).await?;
            session.wait_for_hello().await?;
            let login = LoginNode::new(session, options.user_prompt.clone()).await?;
            state.login = Some(login);
        }
        match &mut state.login {
            Some(login) => {
                login.deadline = state.deadline;
                Ok(login)
            }
            // Set above.
            None => Err(RemoteError::LinkCut { doing: "logging in", why: String::new() }),
        }
    }

    /// One attempt to connect.
    async fn attempt(
        &self,
        state: &mut State,
        options: &ConnectOptions,
    ) -> Result<Session, RemoteError> {
        let request = &options.host_request;
        // The wait for a node begins once the login node answers.
        self.login(state, options).await?;
        let queued_since = *state.queued_since.get_or_insert_with(Instant::now);
        // A node that was reached once is not waited for in the queue again.
        let limit = request.queue_timeout.filter(|_| !state.has_connected);
        state.deadline = limit.and_then(|limit| queued_since.checked_add(limit));
        let run_name = allocation_name(&options.run, request.host_number);
        if state.allocation.is_none() {
            let warm_name = self.warm_name();
            let login = self.login(state, options).await?;
            let names = [run_name.as_str(), &warm_name];
            let names = match (options.run.is_empty(), request.host_number) {
                (true, _) => &names[1..],
                // The node that is kept is the first host of the run, and the only one. It has the
                // GPUs of the remote's settings.
                (false, 0) if request.nodes <= 1 && self.settings.has_enough_gpus(request.gpus) => {
                    &names[..]
                }
                (false, _) => &names[..1],
            };
            let found = Allocation::find(login, names).await?;
            state.allocation = match (found, request.host_use) {
                // Nobody has put a job there yet.
                (Some((_, found_state)), HostUse::Existing) if found_state != "RUNNING" => None,
                (Some((found, _)), _) => {
                    state.own_name = (found.name == run_name).then(|| run_name.clone());
                    Some(found)
                }
                (None, HostUse::Existing) => None,
                (None, HostUse::Start) => {
                    let program = AgentStart::new(&self.results_spec(""), &options.agent)?;
                    let (settings, idle) = (&self.settings, self.settings.idle);
                    let name = match options.run.as_str() {
                        "" => job_name("rgpu-check-", &nonce()[..12]),
                        _ => run_name.clone(),
                    };
                    let name = state.own_name.get_or_insert(name).clone();
                    let login = self.login(state, options).await?;
                    let program = program.file_name();
                    let (nodes, gpus) = (request.nodes.max(1), request.gpus);
                    let (name, program) = (name.as_str(), program.as_str());
                    let job = AllocationRequest { name, program, idle, nodes, gpus };
                    Some(Allocation::submit(login, settings, job).await?)
                }
            };
        }
        let Some(allocation) = state.allocation.clone() else {
            return self.results(state, options, &options.run).await;
        };
        self.on_node(state, options, &allocation).await
    }

    /// Waits for the allocation and connects to its node. If it has ended after this command or
    /// another one had used it, connects to its results.
    async fn on_node(
        &self,
        state: &mut State,
        options: &ConnectOptions,
        allocation: &Allocation,
    ) -> Result<Session, RemoteError> {
        let request = &options.host_request;
        let queued_since = *state.queued_since.get_or_insert_with(Instant::now);
        let mut running_since = None;
        loop {
            let login = self.login(state, options).await?;
            let (limit, user_prompt) = (request.queue_timeout, &*options.user_prompt);
            let reached =
                allocation.wait(login, &self.settings, queued_since, limit, user_prompt).await?;
            let end = match reached {
                AllocationState::Running(info) => {
                    let since = *running_since.get_or_insert_with(Instant::now);
                    match self.node_session(state, options, allocation, &info).await {
                        Ok(session) => {
                            state.has_connected = true;
                            state.deadline = None;
                            return Ok(session);
                        }
                        // The node is still being prepared, or the job has just ended.
                        Err(RemoteError::AgentStart { ended, last })
                            if since.elapsed() < HOLDER_TIMEOUT =>
                        {
                            user_prompt.verbose(&format!("the node is not ready: {ended} {last}"));
                            sleep(Duration::from_secs(1)).await;
                            continue;
                        }
                        Err(error) => return Err(error),
                    }
                }
                AllocationState::Ended(end) => end,
            };
            *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(end.clone());
            let was_used = state.has_connected || request.host_use == HostUse::Existing;
            // A lost node has told nothing of the end, and never will.
            return if was_used && !end.is_lost_node() {
                self.results(state, options, &options.run).await
            } else {
                Err(end.into())
            };
        }
    }

    async fn node_session(
        &self,
        state: &mut State,
        options: &ConnectOptions,
        allocation: &Allocation,
        info: &JobInfo,
    ) -> Result<Session, RemoteError> {
        let srun = self.login(state, options).await?.srun().to_owned();
        let start = AgentStart::new(&self.node_spec(allocation, info, &srun), &options.agent)?;
        self.session_through(state, options, start).await
    }

    /// A session with the login node, for what jobs have left in the shared folder.
    async fn results(
        &self,
        state: &mut State,
        options: &ConnectOptions,
        ended_run: &str,
    ) -> Result<Session, RemoteError> {
        let start = AgentStart::new(&self.results_spec(ended_run), &options.agent)?;
        self.session_through(state, options, start).await
    }

    /// A session with the agent that `start` starts from the login node.
    async fn session_through(
        &self,
        state: &mut State,
        options: &ConnectOptions,
        start: AgentStart,
    ) -> Result<Session, RemoteError> {
        let login = self.login(state, options).await?.streams();
        let streams = ThroughLogin { login, start };
        let wire = streams.open().await?;
        Session::start(wire, Arc::new(streams), &self.spec).await
    }

    /// Ends the allocation that this command has submitted.
    async fn end_own(&self, options: &ConnectOptions) -> Result<(), RemoteError> {
        let mut state = self.state.lock().await;
        state.deadline = None;
        let Some(name) = state.own_name.take() else { return Ok(()) };
        let (allocation, was_used) = (state.allocation.take(), state.has_connected);
        let login = self.login(&mut state, options).await?;
        // A request that was cut may still have submitted it.
        let allocation = match allocation.filter(|allocation| allocation.name == name) {
            Some(allocation) => Some(allocation),
            None => Allocation::find(login, &[&name]).await?.map(|(found, _)| found),
        };
        match allocation {
            Some(allocation) if was_used => allocation.finish(login).await,
            Some(allocation) => allocation.cancel(login).await,
            None => Ok(()),
        }
    }

    /// The allocation that is kept warm.
    async fn find_warm(
        &self,
        state: &mut State,
        options: &ConnectOptions,
    ) -> Result<Option<(Allocation, String)>, RemoteError> {
        let name = self.warm_name();
        let login = self.login(state, options).await?;
        Allocation::find(login, &[&name]).await
    }
}

#[async_trait::async_trait]
impl Remote for Slurm {
    fn name(&self) -> &str {
        &self.spec.name
    }

    fn transport(&self) -> &'static str {
        "slurm"
    }

    async fn connect(&self, options: &ConnectOptions) -> Result<Session, RemoteError> {
        let mut state = self.state.lock().await;
        let (policy, mut outage) = (ReconnectPolicy::default(), None);
        loop {
            let error = match self.attempt(&mut state, options).await {
                Err(error) if error.is_link() => {
                    if let Some(late) = state.queue_timeout(options.host_request.queue_timeout) {
                        return Err(late.into());
                    }
                    error
                }
                answer => {
                    if outage.is_some() {
                        options.user_prompt.link_back();
                    }
                    return answer;
                }
            };
            // The first connection is not retried; once a job may be in the queue, it is. A job
            // that is followed has its own retries.
            let waits = state.own_name.is_some() || state.allocation.is_some();
            let (since, pause) = outage.unwrap_or((Instant::now(), policy.first));
            if !waits || state.has_connected || since.elapsed() > policy.total {
                return Err(error);
            }
            state.login = None;
            options.user_prompt.link_lost(&error, pause);
            let left = state.deadline.map(|end| end.saturating_duration_since(Instant::now()));
            sleep(pause.min(left.unwrap_or(pause))).await;
            outage = Some((since, (pause * 2).min(policy.longest)));
        }
    }

    fn rented(&self) -> Option<&dyn RentedRemote> {
        Some(self)
    }

    fn host_loss_reason(&self) -> Option<RemoteError> {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        end.clone().map(RemoteError::Slurm)
    }

    async fn is_host_taken(&self, options: &ConnectOptions) -> bool {
        let mut state = self.state.lock().await;
        let Some(allocation) = state.allocation.clone() else { return false };
        let Ok(login) = self.login(&mut state, options).await else { return false };
        let Ok(Some(end)) = allocation.forced_end(login).await else { return false };
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
        true
    }

    fn keep_host(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }

    async fn release(&self, options: &ConnectOptions) {
        if self.is_kept.load(Ordering::Relaxed) {
            return;
        }
        let user_prompt = &options.user_prompt;
        match timeout(RELEASE_TIMEOUT, self.end_own(options)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => user_prompt.verbose(&format!("the node was not given back: {error}")),
            Err(_) => user_prompt.verbose("the node was not given back: no answer"),
        }
    }
}

#[async_trait::async_trait]
impl RentedRemote for Slurm {
    async fn up(&self, options: &ConnectOptions) -> Result<Rental, RemoteError> {
        let mut state = self.state.lock().await;
        let state = &mut *state;
        let allocation = match self.find_warm(state, options).await? {
            Some((found, _)) => found,
            None => {
                let program = AgentStart::new(&self.results_spec(""), &options.agent)?;
                let (name, program) = (self.warm_name(), program.file_name());
                let login = self.login(state, options).await?;
                let (name, program) = (name.as_str(), program.as_str());
                let idle = WARM_IDLE;
                let job = AllocationRequest { name, program, idle, nodes: 1, gpus: None };
                Allocation::submit(login, &self.settings, job).await?
            }
        };
        let login = self.login(state, options).await?;
        let (since, user_prompt) = (Instant::now(), &*options.user_prompt);
        match allocation.wait(login, &self.settings, since, None, user_prompt).await? {
            AllocationState::Running(info) => Ok(self.rental(format!("running on {}", info.nodes))),
            AllocationState::Ended(end) => Err(end.into()),
        }
    }

    async fn state(&self, options: &ConnectOptions) -> Result<Rental, RemoteError> {
        let mut state = self.state.lock().await;
        let found = self.find_warm(&mut state, options).await?;
        let state = match found {
            Some((_, found_state)) => super::foreign_text::excerpt(&found_state).to_lowercase(),
            None => "no node is kept".to_owned(),
        };
        Ok(self.rental(state))
    }

    async fn down(&self, options: &ConnectOptions) -> Result<bool, RemoteError> {
        let mut state = self.state.lock().await;
        let Some((found, _)) = self.find_warm(&mut state, options).await? else { return Ok(false) };
        let login = self.login(&mut state, options).await?;
        found.cancel(login).await?;
        Ok(true)
    }
}

impl Slurm {
    fn rental(&self, state: String) -> Rental {
        let count = |gpus: &String| match gpus.parse::<u16>() {
            Ok(1) => "1 GPU".to_owned(),
            Ok(n) => format!("{n} GPUs"),
            Err(_) => gpus.clone(),
        };
        Rental { state, gpu: self.settings.gpus.as_ref().map(count), ..Rental::default() }
    }
}

/// A node that is kept warm is given back by `rgpu remote down`, or at its time limit.
const WARM_IDLE: Duration = Duration::from_secs(365 * 24 * 3600);

/// The name of the allocation that a command requests: that of its run, with the number of the host
/// after the first. No run has a `+` in its name.
fn allocation_name(run: &str, host_number: u32) -> String {
    let name = job_name("rgpu-", run);
    match host_number {
        0 => name,
        number => format!("{name}+{number}"),
    }
}

/// The name of a job of Slurm for a run or a remote. Their names have only the characters kept
/// here, unless the user typed an address in place of a remote's name.
fn job_name(prefix: &str, name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = name.chars().take(MAX_NAME_CHARS).map(plain).collect();
    format!("{prefix}{name}")
}

/// Opens streams to agents that are started from the login node.
struct ThroughLogin {
    login: Arc<dyn StreamOpener>,
    start: AgentStart,
}

#[async_trait::async_trait]
impl StreamOpener for ThroughLogin {
    async fn open(&self) -> Result<AgentStream, RemoteError> {
        self.login.open_with(&self.start).await
    }

    fn round_trip(&self) -> Duration {
        self.login.round_trip()
    }
}
