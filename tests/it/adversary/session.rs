//! One case: a client in a sandbox against a host that tells one lie.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rgpu_plan::tool::{BundleFile, JobFileContent, Program};
use rgpu_protocol::plan::Arg;
use rgpu_protocol::{EventBody, HostFacts};
use rgpu_remote::options::NoPrompt;
use rgpu_remote::{
    ConnectOptions, HostLink, OnRemote, ReconnectPolicy, RemoteSpec, UnknownHostPolicy,
};
use rgpu_run::run::{
    CancelSignal, Canceller, ExecRequest, ExecRun, FactsCache, FileCopies, ProgramExit, Programs,
    Reporter, RunContext, RunEvent, RunSession, RunStart, channel,
};
use rgpu_run::store::{RunFolder, RunRecord};

use super::agent::{FaultyAgent, State};
use super::invalid_messages::InvalidMessage;
use super::{ARTIFACT, FILE, JOB, OUTPUT};

/// A host that has neither read nor written for this long has nothing more to say.
const IDLE: Duration = Duration::from_secs(3);

/// No case may take longer, whatever the machine does beside it.
const HANG: Duration = Duration::from_secs(60);

/// The result of a case that ended before its lie.
pub(crate) const NEVER_TOLD: &str = "the lie was never told";

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    /// The lie had no effect.
    Harmless,
    /// The command succeeded with another result: a host can lie about its results.
    Believed,
    /// The command ended with an error.
    Refused,
    /// The command waited, and one signal ended it.
    Stopped,
    /// The command waited until its limit, which a cut link stands for here.
    Limited,
}

impl End {
    /// Its letter in the table.
    pub(crate) fn letter(self) -> char {
        match self {
            Self::Harmless => 'h',
            Self::Believed => 'b',
            Self::Refused => 'r',
            Self::Stopped => 's',
            Self::Limited => 'l',
        }
    }
}

/// A lie at a state.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) state: State,
    pub(crate) message: String,
    pub(crate) lie: InvalidMessage,
}

impl Case {
    pub(crate) fn title(&self) -> String {
        format!("{:?}, {}: {}", self.state, self.message, self.lie.name)
    }
}

/// Runs the case; returns how it ended, or which promise was broken.
pub(crate) async fn run(case: Case) -> Result<End, String> {
    let sandbox = tempfile::tempdir().unwrap();
    let project = sandbox.path().join("home/user/project");
    std::fs::create_dir_all(&project).unwrap();
    std::fs::write(project.join("in.bin"), FILE).unwrap();
    std::fs::write(project.join("out.txt"), "mine").unwrap();
    let before = listing(sandbox.path());
    let agent = FaultyAgent::new(
        case.state,
        case.lie.clone(),
        case.message == case.state.awaits(),
        sandbox.path().display().to_string(),
    );
    let (canceller, cancel) = channel();
    let begun = Instant::now();
    let client = client(&agent, case.state, &project, (canceller.clone(), cancel));
    tokio::pin!(client);
    let (mut asked, mut nudged) = (None, Instant::now());
    let end = loop {
        tokio::select! {
            end = &mut client => break end,
            () = tokio::time::sleep(Duration::from_millis(100)) => {}
        }
        if begun.elapsed() > HANG {
            return Err("hangs".to_owned());
        }
        if agent.moved().max(nudged).elapsed() > IDLE {
            nudged = Instant::now();
            match asked.replace(nudged) {
                None => canceller.request_cancel(),
                Some(_) => agent.go_down(),
            }
            if asked.is_some_and(|first| first.elapsed() > 3 * IDLE) {
                agent.go_down();
            }
        }
    };
    let went_down = agent.is_down();
    let end = match (end, asked) {
        (_, Some(_)) if went_down => End::Limited,
        (_, Some(_)) => End::Stopped,
        (Ok(true), None) => End::Harmless,
        (Ok(false), None) => End::Believed,
        (Err(_), None) => End::Refused,
    };
    let after = listing(sandbox.path());
    let run = Path::new("home/user/project/artifacts");
    let (inside, after): (BTreeMap<_, _>, BTreeMap<_, _>) =
        after.into_iter().partition(|(path, _)| path.starts_with(run));
    if after != before {
        return Err(format!("files outside the run folder: {after:?}"));
    }
    let runs = run.join("runs");
    let ours = |path: &&PathBuf| {
        [
            run.into(),
            runs.clone(),
            runs.join("latest"),
            runs.join(".latest"),
            runs.join(".gitignore"),
            run.join(".gitignore"),
        ]
        .contains(path)
            || path.starts_with(runs.join("adversary"))
    };
    if let Some(foreign) = inside.keys().find(|path| !ours(path)) {
        return Err(format!("{} is outside the run folder", foreign.display()));
    }
    let partial = |path: &&PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(".writing-") || (name.ends_with(".part") && end == End::Harmless)
    };
    if let Some(left) = inside.keys().find(partial) {
        return Err(format!("{} was left behind", left.display()));
    }
    if agent.told() { Ok(end) } else { Err(NEVER_TOLD.to_owned()) }
}

/// Files and folders with their contents.
fn listing(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = walkdir::WalkDir::new(folder).into_iter().flatten();
    let entry = |entry: walkdir::DirEntry| {
        let path = entry.path().strip_prefix(folder).unwrap().to_owned();
        let bytes = if entry.file_type().is_file() {
            std::fs::read(entry.path()).unwrap()
        } else {
            Vec::new()
        };
        (path, bytes)
    };
    // The folder above a written file changes too, so only what is in it counts.
    entries.map(entry).filter(|(path, _)| !path.as_os_str().is_empty()).collect()
}

/// Does what `state` needs; returns whether the result is the honest host's.
async fn client(
    agent: &FaultyAgent,
    state: State,
    project: &Path,
    (canceller, mut cancel): (Canceller, CancelSignal),
) -> Result<bool, String> {
    let options = ConnectOptions {
        agent: "unused".into(),
        unknown_host_policy: UnknownHostPolicy::Refuse,
        user_prompt: Arc::new(NoPrompt),
        run: String::new(),
        host_request: Default::default(),
    };
    let patience = ReconnectPolicy {
        first: Duration::from_millis(1),
        longest: Duration::from_millis(10),
        total: Duration::from_millis(200),
    };
    let remote = Arc::new(agent.clone());
    let mut stop = cancel.clone();
    // As the commands do: what asks nothing of a job ends with the first signal.
    let ask = async {
        let link = HostLink::connect(remote.clone(), options).await.on(&*remote);
        let mut link = link.map_err(|failure| failure.to_string())?.with_reconnect_policy(patience);
        let honest = match state {
            State::Greeting | State::Facts => {
                link.facts(&[]).await.map(|facts| facts == super::samples::facts())
            }
            State::Listing => link.jobs().await.map(|jobs| jobs == Default::default()),
            State::Planning => link.plan(JOB).await.map(|plan| plan == super::samples::plan()),
            State::Forgetting => link.remove_job(JOB).await.map(|()| true),
            _ => return Ok((Some(link), true)),
        };
        let honest = honest.on(&*remote).map_err(|failure| failure.to_string())?;
        link.close().await;
        Ok::<_, String>((None, honest))
    };
    let (link, honest) = tokio::select! {
        asked = ask => asked?,
        () = stop.wait_for_more_than(0) => return Err("cancelled".to_owned()),
    };
    let Some(mut link) = link else { return Ok(honest) };

    let runs = project.join("artifacts/runs");
    let folder = RunFolder::create(&runs, "adversary", None).map_err(|e| e.to_string())?;
    let mut record = RunRecord::new("adversary".into(), "exec", jiff::Timestamp::UNIX_EPOCH);
    let mut reporter =
        Watcher { canceller, cancels: state == State::Cancelling, output: Vec::new() };
    let request = request(project);
    let mut context = RunContext {
        folder: &folder,
        record: &mut record,
        reporter: &mut reporter,
        cancel: cancel.clone(),
        input: None,
    };
    let (spec, programs) = (RemoteSpec::default(), Programs::default());
    let cache = FactsCache::new(&project.join("cache"), &spec, &BTreeMap::new());
    let start = if state == State::Detaching { RunStart::Detached } else { RunStart::New };
    let mut session = RunSession::new(&mut link, &spec, cache, &programs, start);
    let pull = request.pull.clone();
    let program = move |_: Option<&HostFacts>| Ok(request.clone());
    let run = ExecRun {
        program: Some(&program),
        needs_facts: false,
        pull: &pull,
        copies: FileCopies::default(),
    };
    let outcome = run.run(&mut session, &mut context).await;
    let closed = rgpu_run::run::close(link, &mut record, &mut stop);
    tokio::select! {
        () = closed => {}
        () = cancel.wait_for_more_than(0) => {}
    }
    let outcome = outcome.map_err(|failure| failure.to_string())?;
    let end = match outcome.end {
        Some(end) => Some(end.map_err(|failure| failure.to_string())?),
        None => None,
    };
    if state == State::Detaching {
        return Ok(end.is_none());
    }
    let pulled = std::fs::read(folder.path().join("pulled/out.txt")).unwrap_or_default();
    Ok(end == Some(ProgramExit::Exit(0))
        && reporter.output == OUTPUT
        && outcome.pulled.len() == 1
        && pulled == ARTIFACT)
}

fn request(project: &Path) -> ExecRequest {
    let file = BundleFile {
        path: "here/in.bin".into(),
        content: JobFileContent::Local(project.join("in.bin")),
        executable: false,
    };
    let program = Program {
        name: "prog".into(),
        argv: vec![Arg::text("prog")],
        files: vec![file],
        cwd: "here".into(),
        ..Program::default()
    };
    ExecRequest {
        program,
        timeout: Duration::from_secs(60),
        pull: vec!["out*".into()],
        ..ExecRequest::default()
    }
}

/// Keeps the program's output, and cancels the job once it runs.
struct Watcher {
    canceller: Canceller,
    cancels: bool,
    output: Vec<u8>,
}

impl Reporter for Watcher {
    fn report(&mut self, event: &RunEvent<'_>) {
        match event {
            RunEvent::Output { bytes, .. } => self.output.extend_from_slice(bytes),
            RunEvent::Job { event, .. }
                if self.cancels && matches!(event.body, EventBody::Output { .. }) =>
            {
                self.cancels = false;
                self.canceller.request_cancel();
            }
            _ => {}
        }
    }
}
