//! A real OpenSSH server on loopback, with a home of its own, and a TCP proxy that cuts links.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// A running sshd and the files of its user.
pub(crate) struct Sshd {
    folder: tempfile::TempDir,
    child: Child,
    pub(crate) port: u16,
    pub(crate) user: String,
}

impl Sshd {
    /// With a fresh host key and a client key that it takes.
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("home")).unwrap();
        // sshd itself asks for it when it runs as root.
        let _ = fs::create_dir_all("/run/sshd");
        keygen(&at("host_key"));
        keygen(&at("id"));
        fs::copy(at("id.pub"), at("authorized_keys")).unwrap();
        let port = free_port();
        let config = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey FOLDER/host_key\n\
             AuthorizedKeysFile FOLDER/authorized_keys\nPidFile none\nUsePAM no\nStrictModes no\n\
             PermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             SetEnv HOME=FOLDER/home RGPU_AGENT_HOME=FOLDER/home/.cache/rgpu\n\
             LogLevel VERBOSE\n"
        );
        fs::write(at("sshd_config"), config.replace("FOLDER", folder.path().to_str().unwrap()))
            .unwrap();
        let child = Self::spawn(folder.path());
        let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout);
        let user = user.unwrap().trim().to_owned();
        let this = Self { folder, child, port, user };
        this.await_port();
        this.client_config("");
        this
    }

    /// The same server with further lines of `sshd_config`, read anew.
    pub(crate) fn restart(mut self, lines: &str) -> Self {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let path = self.path("sshd_config");
        let mut config = fs::read_to_string(&path).unwrap();
        config.push_str(&lines.replace("FOLDER", self.folder.path().to_str().unwrap()));
        config.push('\n');
        fs::write(&path, config).unwrap();
        self.child = Self::spawn(self.folder.path());
        self.await_port();
        self
    }

    fn spawn(folder: &Path) -> Child {
        let program =
            ["/usr/sbin/sshd", "/usr/bin/sshd"].into_iter().find(|p| Path::new(p).exists());
        Command::new(program.expect("install openssh-server"))
            .arg("-D")
            .arg("-f")
            .arg(folder.join("sshd_config"))
            .arg("-E")
            .arg(folder.join("log"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn await_port(&self) {
        let end = Instant::now() + Duration::from_secs(10);
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < end, "sshd does not listen: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A file of this server's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Writes the client's ssh configuration: nothing of the real user's is read. `lines` come
    /// first; `FOLDER` stands for this server's folder.
    pub(crate) fn client_config(&self, lines: &str) {
        let text = format!(
            "{lines}\nHost *\n  IdentityFile FOLDER/id\n  IdentityAgent none\n  \
             UserKnownHostsFile FOLDER/known_hosts\n  GlobalKnownHostsFile /dev/null\n"
        );
        let text = text.replace("FOLDER", self.folder.path().to_str().unwrap());
        fs::write(self.path("ssh_config"), text).unwrap();
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes an ed25519 key without a passphrase at `path`.
pub(crate) fn keygen(path: &Path) {
    ssh_keygen(&["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", path.to_str().unwrap()]);
}

pub(crate) fn ssh_keygen(args: &[&str]) {
    let output = Command::new("ssh-keygen").args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A port that nobody listens on.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A proxy before a server that makes the way longer, and cuts each link after a number of bytes
/// from the server.
#[derive(Clone)]
pub(crate) struct Cutter {
    pub(crate) port: u16,
    after: Arc<AtomicU64>,
    hold: Arc<AtomicU64>,
    links: Arc<AtomicU64>,
}

impl Cutter {
    /// Before `port`; nothing is cut yet.
    pub(crate) async fn before(port: u16) -> Self {
        Self::far_from(port, Duration::ZERO).await
    }

    /// Before `port`, with `delay` each way.
    pub(crate) async fn far_from(port: u16, delay: Duration) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let this = Self {
            port: listener.local_addr().unwrap().port(),
            after: Arc::new(AtomicU64::new(u64::MAX)),
            hold: Arc::new(AtomicU64::new(u64::MAX)),
            links: Arc::default(),
        };
        let (after, links, hold) = (this.after.clone(), this.links.clone(), this.hold.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                links.fetch_add(1, Ordering::SeqCst);
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let never = Arc::new(AtomicU64::new(u64::MAX));
                let up = carry(from_client, to_server, delay, never, hold.clone());
                let down = carry(from_server, to_client, delay, after.clone(), hold.clone());
                // Both sockets are dropped once the server's side is done or cut.
                tokio::spawn(async move {
                    tokio::select! {
                        () = down => {}
                        () = async { up.await; std::future::pending::<()>().await } => {}
                    }
                });
            }
        });
        this
    }

    /// Cuts every link, those that are there too, once it has brought this many bytes.
    pub(crate) fn cut_after(&self, bytes: u64) {
        self.after.store(bytes, Ordering::SeqCst);
    }

    /// Lets every link stand still, those that are there too, once it has carried this many bytes
    /// one way.
    pub(crate) fn hold_after(&self, bytes: u64) {
        self.hold.store(bytes, Ordering::SeqCst);
    }

    /// The number of connections so far.
    pub(crate) fn links(&self) -> u64 {
        self.links.load(Ordering::SeqCst)
    }
}

/// Carries bytes one way, each `delay` late, until the end or the cut.
async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    delay: Duration,
    after: Arc<AtomicU64>,
    hold: Arc<AtomicU64>,
) {
    let (queue, mut late) = tokio::sync::mpsc::channel::<(tokio::time::Instant, Vec<u8>)>(4096);
    let read = async move {
        let mut seen = 0;
        let mut buffer = vec![0; 64 << 10];
        while let Ok(n) = from.read(&mut buffer).await {
            seen += n as u64;
            while n > 0 && seen > hold.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let piece = (tokio::time::Instant::now() + delay, buffer[..n].to_vec());
            if n == 0 || seen > after.load(Ordering::SeqCst) || queue.send(piece).await.is_err() {
                break;
            }
        }
    };
    let write = async move {
        while let Some((due, piece)) = late.recv().await {
            tokio::time::sleep_until(due).await;
            if to.write_all(&piece).await.is_err() {
                break;
            }
        }
        let _ = to.shutdown().await;
    };
    tokio::join!(read, write);
}
