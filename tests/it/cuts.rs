//! Links that are cut at every boundary of a frame and within frames, on the way up and on the way
//! down, while a job is submitted, runs, ends and is brought home: nothing is lost, nothing comes
//! twice, and the program runs once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rgpu_protocol::Outcome;
use rgpu_protocol::frame::{HEADER, MAGIC};
use rgpu_remote::client::StreamOpener;
use rgpu_remote::deploy::await_magic;
use rgpu_remote::options::NoPrompt;
use rgpu_remote::stream::{AgentStream, FrameReader, StreamEnd};
use rgpu_remote::{
    ConnectOptions, HostLink, ReconnectPolicy, Remote, RemoteError, RemoteFile, RemoteSpec,
    Session, UnknownHostPolicy,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::process::{ChildStdin, ChildStdout, Command};

use crate::host::{agent, follow, submission};

/// The direction that is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// The position of a cut in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CutPosition {
    Before,
    Header,
    Body,
}

/// One cut: in the frame of this number.
#[derive(Clone, Copy, Debug)]
struct Cut {
    direction: Direction,
    frame: usize,
    place: CutPosition,
}

/// Counts the frames of one direction and returns how many bytes may pass.
struct CutCounter {
    cut: Option<(usize, CutPosition)>,
    /// Bytes until something happens: of the magic line, or of a body.
    left: usize,
    header: Vec<u8>,
    frames: Arc<AtomicUsize>,
}

impl CutCounter {
    fn new(direction: Direction, cut: Option<Cut>, left: usize, frames: &Arc<AtomicUsize>) -> Self {
        let cut = cut.filter(|cut| cut.direction == direction).map(|cut| (cut.frame, cut.place));
        frames.store(0, Ordering::Relaxed);
        Self { cut, left, header: Vec::new(), frames: frames.clone() }
    }

    /// How many of `bytes` pass, and whether the way ends behind them.
    fn pass(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut at = 0;
        loop {
            let n = self.left.min(bytes.len() - at);
            (at, self.left) = (at + n, self.left - n);
            let here = self.cut.filter(|(frame, _)| *frame == self.frames.load(Ordering::Relaxed));
            match here {
                Some((_, CutPosition::Before)) if self.left == 0 && self.header.is_empty() => {
                    return (at, true);
                }
                Some((_, CutPosition::Header)) if self.header.len() == HEADER / 2 => {
                    return (at, true);
                }
                _ => {}
            }
            if at == bytes.len() {
                return (at, false);
            }
            self.header.push(bytes[at]);
            at += 1;
            if let [a, b, c, d, _kind] = *self.header {
                self.header.clear();
                self.left = u32::from_le_bytes([a, b, c, d]) as usize;
                if here.is_some() {
                    // Half of the body, which may lie behind these bytes.
                    self.left /= 2;
                    self.cut = Some((usize::MAX, CutPosition::Before));
                    self.frames.store(usize::MAX, Ordering::Relaxed);
                } else {
                    self.frames.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

/// The output of the agent, until the cut.
struct CutReader {
    from: Option<ChildStdout>,
    counter: CutCounter,
}

impl AsyncRead for CutReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let Some(from) = &mut this.from else { return Poll::Ready(Ok(())) };
        let before = buffer.filled().len();
        let polled = Pin::new(from).poll_read(context, buffer);
        if matches!(polled, Poll::Ready(Ok(()))) {
            let (n, ends) = this.counter.pass(&buffer.filled()[before..]);
            buffer.set_filled(before + n);
            if ends {
                this.from = None;
            }
        }
        polled
    }
}

/// The input of the agent, until the cut.
struct CutWriter {
    to: Option<ChildStdin>,
    counter: CutCounter,
    /// What has passed and is not yet written.
    passed: Vec<u8>,
    ends: bool,
}

impl CutWriter {
    fn drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let (Some(to), false) = (&mut self.to, self.passed.is_empty()) {
            let n = ready!(Pin::new(to).poll_write(context, &self.passed))?;
            self.passed.drain(..n);
        }
        if self.ends {
            self.to = None;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for CutWriter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.drain(context))?;
        if self.to.is_none() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let (n, ends) = self.counter.pass(bytes);
        self.passed.extend_from_slice(&bytes[..n]);
        self.ends = ends;
        // A cut is seen by whoever reads: what was sent last is gone unnoticed.
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.drain(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.drain(context))?;
        self.to = None;
        Poll::Ready(Ok(()))
    }
}

/// This machine, over links of which the first ones are cut.
#[derive(Clone)]
struct CutRemote {
    home: PathBuf,
    cuts: Arc<Mutex<Vec<Cut>>>,
    links: Arc<AtomicUsize>,
    up: Arc<AtomicUsize>,
    down: Arc<AtomicUsize>,
}

#[async_trait::async_trait]
impl Remote for CutRemote {
    fn name(&self) -> &str {
        "cutting"
    }

    fn transport(&self) -> &'static str {
        "local"
    }

    async fn connect(&self, _: &ConnectOptions) -> Result<Session, RemoteError> {
        let wire = self.open().await?;
        Session::start(wire, Arc::new(self.clone()), &RemoteSpec::local()).await
    }
}

#[async_trait::async_trait]
impl StreamOpener for CutRemote {
    async fn open(&self) -> Result<AgentStream, RemoteError> {
        self.links.fetch_add(1, Ordering::Relaxed);
        let cut = {
            let mut cuts = self.cuts.lock().unwrap();
            (!cuts.is_empty()).then(|| cuts.remove(0))
        };
        let mut command = Command::new(agent());
        command.arg("stdio").env("HOME", &self.home).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let down = CutCounter::new(Direction::Down, cut, MAGIC.len(), &self.down);
        let up = CutCounter::new(Direction::Up, cut, 0, &self.up);
        let wire = AgentStream {
            reader: FrameReader::new(Box::new(CutReader {
                from: child.stdout.take(),
                counter: down,
            })),
            writer: Box::new(CutWriter {
                to: child.stdin.take(),
                counter: up,
                passed: Vec::new(),
                ends: false,
            }),
            ending: StreamEnd::default(),
        };
        tokio::spawn(async move { child.wait().await });
        await_magic(wire, &NoPrompt).await
    }

    fn round_trip(&self) -> Duration {
        // So long that what is brought home begins to come unasked.
        Duration::from_millis(50)
    }
}

impl CutRemote {
    fn new(home: &Path) -> Self {
        let home = home.to_owned();
        let counter = || Arc::new(AtomicUsize::new(0));
        Self { home, cuts: Arc::default(), links: counter(), up: counter(), down: counter() }
    }

    async fn connect(&self, cuts: &[Cut]) -> Result<HostLink, RemoteError> {
        *self.cuts.lock().unwrap() = cuts.to_vec();
        self.links.store(0, Ordering::Relaxed);
        let options = ConnectOptions {
            agent: agent(),
            unknown_host_policy: UnknownHostPolicy::Refuse,
            user_prompt: Arc::new(NoPrompt),
            run: String::new(),
            host_request: Default::default(),
        };
        let quick = ReconnectPolicy {
            first: Duration::from_millis(2),
            longest: Duration::from_millis(2),
            total: Duration::from_secs(20),
        };
        Ok(HostLink::connect(Arc::new(self.clone()), options).await?.with_reconnect_policy(quick))
    }

    /// A job over links with these cuts, and all that it must have come to.
    async fn job(&self, cuts: &[Cut]) -> Result<(), RemoteError> {
        let runs = self.home.join("runs");
        fs::write(&runs, "").unwrap();
        let mut link = self.connect(cuts).await?;
        let text =
            format!("echo x >> {}; cat in; echo err >&2; cp in small; cp big out", runs.display());
        let big: Vec<u8> =
            (0..300_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        // Its bytes were never there before.
        let input = format!("{:?} {cuts:?}\n", std::time::Instant::now());
        let files: [(&str, &[u8]); 2] = [("in", input.as_bytes()), ("big", &big)];
        let job = submission(&["/bin/sh", "-c", &text], &files, &["small", "out"]);
        link.submit(&job, &|_| ()).await?;
        let story = follow(&mut link).await?;
        assert_eq!(*story.outcome(), Outcome::Done, "{cuts:?}");
        assert_eq!((&*story.stdout, &*story.stderr), (input.as_bytes(), &b"err\n"[..]), "{cuts:?}");
        assert_eq!(fs::read_to_string(&runs).unwrap(), "x\n", "{cuts:?}");
        let mut brought = Vec::new();
        for event in &story.events {
            let Some(wanted) = RemoteFile::from_event(&job.plan.job, event) else { continue };
            let dest = self.home.join(format!("fetched-{}", wanted.path));
            link.fetch(&wanted, &dest, None, &|_| ()).await?;
            brought.push(fs::read(&dest).unwrap());
            fs::remove_file(&dest).unwrap();
        }
        assert!(brought == [input.into_bytes(), big], "{cuts:?}: {} files", brought.len());
        link.request_job_removal(&job.plan.job);
        link.close().await;
        Ok(())
    }
}

/// Frames each way that belong to the greeting: a host that is lost there cannot be reached.
const GREETING: usize = 1;

#[tokio::test]
async fn a_link_cut_at_every_boundary_of_frames_loses_nothing_and_runs_nothing_twice() {
    let home = tempfile::Builder::new().prefix("rgpu-cuts-").tempdir().unwrap();
    let remote = CutRemote::new(home.path());
    remote.job(&[]).await.unwrap();
    let (up, down) = (remote.up.load(Ordering::Relaxed), remote.down.load(Ordering::Relaxed));
    assert!(up > 6 && down > 12, "{up} frames up, {down} down");
    let mut cut_links = 0;
    for (direction, frames) in [(Direction::Up, up), (Direction::Down, down)] {
        for frame in 0..frames {
            for place in [CutPosition::Before, CutPosition::Header, CutPosition::Body] {
                if place == CutPosition::Header && frame % 4 != 1 {
                    continue;
                }
                let cut = Cut { direction, frame, place };
                // Now and then the same again on the link that takes up the job.
                let twice = [cut, cut];
                let again = usize::from(place == CutPosition::Before && frame % 2 == 0);
                for cuts in [&twice[..1], &twice].into_iter().take(1 + again) {
                    let ended =
                        tokio::time::timeout(Duration::from_secs(30), remote.job(cuts)).await;
                    match ended.unwrap_or_else(|_| panic!("{cuts:?}: it hangs")) {
                        Ok(()) => cut_links += remote.links.load(Ordering::Relaxed) - 1,
                        Err(error) if frame < GREETING => assert!(error.is_link(), "{error}"),
                        Err(error) => panic!("{cuts:?}: {error}"),
                    }
                }
            }
        }
    }
    assert!(cut_links > up + down, "{cut_links} links were cut");
}
