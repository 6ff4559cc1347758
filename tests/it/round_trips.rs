//! How many round trips a job over ssh takes, counted: a link that carries what both sides have said
//! only once both have fallen silent, one turn after the other. So no clock is asked, and a round
//! trip that creeps in is seen on any machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rgpu::remote::{ConnectOptions, FirstUse, Follow, Submission, Wanted};
use rgpu_protocol::EventBody;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::host::{agent, connect, submission};
use crate::ssh::user;
use crate::sshd::Sshd;

/// Both sides have said what they have to say when neither says more for so long. On a busy machine
/// one may be slow: then a turn is counted twice, and the next try is better.
const SILENCE: Duration = Duration::from_millis(40);
const TRIES: usize = 4;

/// A link that takes turns.
struct Turns {
    port: u16,
    taken: Arc<AtomicU64>,
}

impl Turns {
    async fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let this = Self { port: listener.local_addr().unwrap().port(), taken: Arc::default() };
        let taken = this.taken.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                tokio::spawn(carry(client, server, taken.clone()));
            }
        });
        this
    }

    fn restart(&self) {
        self.taken.store(0, Ordering::SeqCst);
    }

    /// Half a round trip each.
    fn taken(&self) -> u64 {
        self.taken.load(Ordering::SeqCst)
    }
}

async fn carry(client: TcpStream, server: TcpStream, taken: Arc<AtomicU64>) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let ((mut up, mut to_client), (mut down, mut to_server)) =
        (client.into_split(), server.into_split());
    let (mut from_client, mut from_server) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let (mut said_up, mut said_down) = (Vec::new(), Vec::new());
        let mut open = true;
        loop {
            let heard = async {
                tokio::select! {
                    n = up.read(&mut from_client) => {
                        let n = n.unwrap_or(0);
                        said_up.extend_from_slice(&from_client[..n]);
                        n
                    }
                    n = down.read(&mut from_server) => {
                        let n = n.unwrap_or(0);
                        said_down.extend_from_slice(&from_server[..n]);
                        n
                    }
                }
            };
            match timeout(SILENCE, heard).await {
                Ok(0) => {
                    open = false;
                    break;
                }
                Ok(_) => {}
                Err(_) if said_up.is_empty() && said_down.is_empty() => {}
                Err(_) => break,
            }
        }
        taken.fetch_add(1, Ordering::SeqCst);
        let sent = (to_server.write_all(&said_up).await, to_client.write_all(&said_down).await);
        if !open || sent.0.is_err() || sent.1.is_err() {
            return;
        }
    }
}

/// Turns from the first byte to the end of a job with all that it brings.
async fn turns(sshd: &Sshd, work: impl Fn(usize) -> Submission) -> u64 {
    let link = Turns::before(sshd.port).await;
    let mut least = u64::MAX;
    for attempt in 0..TRIES {
        let options =
            ConnectOptions { agent: agent(), first_use: FirstUse::AcceptNew, talk: user() };
        let work = work(attempt);
        link.restart();
        let remote = Arc::from(sshd.remote_at(link.port).open().unwrap());
        let mut follow = Follow::begin(remote, options).await.unwrap();
        follow.submit(&work, &|_| ()).await.unwrap();
        let mut files = Vec::new();
        while let Some(message) = follow.next().await.unwrap() {
            if let rgpu::remote::JobMessage::Event(event) = message
                && let EventBody::Artifact { path, size, digest, .. } = event.body
            {
                files.push(Wanted { job: work.plan.job.clone(), path, size, digest });
            }
        }
        let folder = tempfile::tempdir().unwrap();
        for file in &files {
            follow.fetch(file, &folder.path().join("file"), &|_| ()).await.unwrap();
        }
        least = least.min(link.taken());
        follow.close().await;
    }
    least
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_takes_as_few_turns_as_ssh_lets_it() {
    let sshd = Sshd::start();
    // The agent is there already.
    connect(&sshd.remote(), FirstUse::AcceptNew, &user()).await.unwrap().close().await;

    // Versions and key exchange 5, service, key and signature 6, channel and command 3, and the
    // answers of the agent, which was told all at once.
    let warm = turns(&sshd, |_| submission(&["/bin/true"], &[], &[])).await;
    assert!(warm <= 15, "{warm} turns");

    // What is missing, and the bytes.
    let upload = turns(&sshd, |attempt| {
        let bytes = attempt.to_le_bytes().repeat(1000);
        submission(&["/bin/true"], &[("file", &bytes)], &[])
    });
    let upload = upload.await;
    assert!(upload <= warm + 2, "{upload} turns, {warm} without a file");

    // A file that is too large for the terminal event comes with it all the same.
    let make = ["/bin/sh", "-c", "head -c 1000000 /dev/urandom > file"];
    let download = turns(&sshd, |_| submission(&make, &[], &["file"])).await;
    assert!(download <= warm + 1, "{download} turns, {warm} without a file");
}
