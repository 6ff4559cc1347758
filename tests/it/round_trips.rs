//! Counts the round trips of a job over ssh: a proxy forwards data only when both directions are
//! idle, so the count does not depend on timing. Also tests requests that are sent before the
//! agent's first answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rgpu_protocol::Outcome;
use rgpu_remote::{
    ConnectOptions, HostLink, JobMessage, ReconnectPolicy, RemoteError, RemoteFile, Submission,
    UnknownHostPolicy,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::host::{User, agent, connect, follow, submission};
use crate::ssh::user;
use crate::sshd::{Cutter, Sshd};

/// Idle time after which one half round trip counts as complete, in ms. On a busy machine a side
/// may be slower than that: then a half round trip is counted twice, and the next attempt waits
/// longer. A longer idle time never joins two, since nothing is forwarded within it.
const IDLE_MS: [u64; 6] = [40, 40, 80, 160, 400, 1000];

/// A proxy that forwards only when both directions are idle.
struct HalfDuplexProxy {
    port: u16,
    count: Arc<AtomicU64>,
}

impl HalfDuplexProxy {
    async fn start(port: u16, idle: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let this = Self { port: listener.local_addr().unwrap().port(), count: Arc::default() };
        let count = this.count.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                tokio::spawn(carry(client, server, count.clone(), idle));
            }
        });
        this
    }

    /// Number of half round trips so far.
    fn half_round_trips(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }
}

async fn carry(client: TcpStream, server: TcpStream, count: Arc<AtomicU64>, idle: Duration) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let ((mut up, mut to_client), (mut down, mut to_server)) =
        (client.into_split(), server.into_split());
    let (mut from_client, mut from_server) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let (mut from_up, mut from_down) = (Vec::new(), Vec::new());
        let mut open = true;
        loop {
            let received = async {
                tokio::select! {
                    n = up.read(&mut from_client) => {
                        let n = n.unwrap_or(0);
                        from_up.extend_from_slice(&from_client[..n]);
                        n
                    }
                    n = down.read(&mut from_server) => {
                        let n = n.unwrap_or(0);
                        from_down.extend_from_slice(&from_server[..n]);
                        n
                    }
                }
            };
            match timeout(idle, received).await {
                Ok(0) => {
                    open = false;
                    break;
                }
                Ok(_) => {}
                Err(_) if from_up.is_empty() && from_down.is_empty() => {}
                Err(_) => break,
            }
        }
        count.fetch_add(1, Ordering::SeqCst);
        let sent = (to_server.write_all(&from_up).await, to_client.write_all(&from_down).await);
        if !open || sent.0.is_err() || sent.1.is_err() {
            return;
        }
    }
}

/// Half round trips from the first byte to the last fetched file of a job. Repeated with longer
/// idle times until they are `enough`; returns the fewest.
async fn half_round_trips(sshd: &Sshd, enough: u64, work: impl Fn(usize) -> Submission) -> u64 {
    let mut least = u64::MAX;
    for (attempt, idle) in IDLE_MS.into_iter().enumerate() {
        let link = HalfDuplexProxy::start(sshd.port, Duration::from_millis(idle)).await;
        let options = ConnectOptions {
            agent: agent(),
            unknown_host_policy: UnknownHostPolicy::AcceptNew,
            user_prompt: user(),
            run: String::new(),
            host_request: Default::default(),
        };
        let work = work(attempt);
        let remote = Arc::from(sshd.remote_at(link.port).open().unwrap());
        let mut job = HostLink::begin(remote, options).await.unwrap();
        job.submit(&work, &|_| ()).await.unwrap();
        let mut files = Vec::new();
        while let Some(message) = job.next().await.unwrap() {
            if let JobMessage::Event(event) = message {
                files.extend(RemoteFile::from_event(&work.plan.job, &event.body));
            }
        }
        let folder = tempfile::tempdir().unwrap();
        for file in &files {
            job.fetch(file, &folder.path().join("file"), None, &|_| ()).await.unwrap();
        }
        least = least.min(link.half_round_trips());
        job.close().await;
        if least <= enough {
            break;
        }
    }
    least
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_takes_as_few_round_trips_as_ssh_lets_it() {
    let sshd = Sshd::start();
    // The agent is there already.
    connect(&sshd.remote(), UnknownHostPolicy::AcceptNew, &user()).await.unwrap().close().await;

    // Eight round trips: versions and keys, then the service, the key, the signature, the channel,
    // the command, and the plan, which goes out before the agent has spoken.
    const WARM: u64 = 16;
    let warm = half_round_trips(&sshd, WARM, |_| submission(&["/bin/true"], &[], &[])).await;
    assert!(warm <= WARM, "{warm} half round trips");

    // What is missing, and the bytes.
    let upload = half_round_trips(&sshd, WARM + 2, |attempt| {
        let bytes = attempt.to_le_bytes().repeat(1000);
        submission(&["/bin/true"], &[("file", &bytes)], &[])
    });
    let upload = upload.await;
    assert!(upload <= WARM + 2, "{upload} half round trips, {warm} without a file");

    // A file that is too large for the terminal event comes with it all the same.
    let make = ["/bin/sh", "-c", "head -c 1000000 /dev/urandom > file"];
    let download = half_round_trips(&sshd, WARM + 1, |_| submission(&make, &[], &["file"])).await;
    assert!(download <= WARM + 1, "{download} half round trips, {warm} without a file");
}

/// How often the program of `script` has run.
fn runs(sshd: &Sshd) -> usize {
    std::fs::read_to_string(sshd.path("runs")).unwrap_or_default().lines().count()
}

fn script(sshd: &Sshd) -> Submission {
    let text = format!("echo x >> {}; cat in", sshd.path("runs").display());
    let input = format!("{:?}\nand\n\nmore\n", std::time::Instant::now());
    submission(&["/bin/sh", "-c", &text], &[("in", input.as_bytes())], &[])
}

async fn begin(sshd: &Sshd, port: u16) -> Result<(HostLink, Arc<User>), RemoteError> {
    let user = user();
    let options = ConnectOptions {
        agent: agent(),
        unknown_host_policy: UnknownHostPolicy::AcceptNew,
        user_prompt: user.clone(),
        run: String::new(),
        host_request: Default::default(),
    };
    let follow = HostLink::begin(Arc::from(sshd.remote_at(port).open()?), options).await?;
    let quick = ReconnectPolicy { first: Duration::from_millis(5), ..ReconnectPolicy::default() };
    Ok((follow.with_reconnect_policy(quick), user))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_host_without_an_agent_was_told_is_told_to_the_agent_that_it_gets() {
    let sshd = Sshd::start();
    let (mut link, user) = begin(&sshd, sshd.port).await.unwrap();
    let work = script(&sshd);
    link.submit(&work, &|_| ()).await.unwrap();
    let story = follow(&mut link).await.unwrap();
    assert!(String::from_utf8_lossy(&story.stdout).ends_with("\nand\n\nmore\n"));
    assert_eq!(runs(&sshd), 1);
    assert!(user.heard().contains("the host has no agent"), "{}", user.heard());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_start_up_file_has_swallowed_is_said_again() {
    let sshd = Sshd::start();
    connect(&sshd.remote(), UnknownHostPolicy::AcceptNew, &user()).await.unwrap().close().await;
    for file in [".bashrc", ".profile", ".zshenv", ".kshrc"] {
        std::fs::write(sshd.path("home").join(file), "timeout 1 cat >/dev/null\n").unwrap();
    }
    let (mut link, _) = begin(&sshd, sshd.port).await.unwrap();
    let began = std::time::Instant::now();
    link.submit(&script(&sshd), &|_| ()).await.unwrap();
    assert_eq!(*follow(&mut link).await.unwrap().outcome(), Outcome::Done);
    assert_eq!(runs(&sshd), 1);
    assert!(began.elapsed() < Duration::from_secs(50), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_is_cut_around_the_first_words_runs_nothing_twice() {
    let sshd = Sshd::start();
    connect(&sshd.remote(), UnknownHostPolicy::AcceptNew, &user()).await.unwrap().close().await;
    let cutter = Cutter::before(sshd.port).await;
    let (mut all, mut cut) = (0, 0);
    for bytes in (2000..6000).step_by(120) {
        cutter.cut_after(bytes);
        let before = cutter.links();
        // One that is lost before anything was asked is told at once.
        let Ok((mut link, _)) = begin(&sshd, cutter.port).await else { continue };
        let work = script(&sshd);
        // The next link holds.
        let mended = async {
            while cutter.links() < before + 2 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            cutter.cut_after(u64::MAX);
            std::future::pending::<()>().await;
        };
        let whole = async {
            link.submit(&work, &|_| ()).await.unwrap();
            follow(&mut link).await.unwrap()
        };
        let story = tokio::select! {
            story = whole => story,
            () = mended => unreachable!(),
        };
        assert_eq!(*story.outcome(), Outcome::Done, "cut after {bytes}");
        all += 1;
        assert_eq!(runs(&sshd), all, "cut after {bytes}");
        cut += usize::from(cutter.links() > before + 1);
    }
    assert!(cut > 3, "{cut} of {all} were cut");
}
