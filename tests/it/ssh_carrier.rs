//! The user's own `ssh` as the carrier, chosen or fallen back to, against a real OpenSSH server.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rgpu_model::error::{Exit, Side};
use rgpu_protocol::Outcome;
use rgpu_remote::{ReconnectPolicy, RemoteSpec, Transport, UnknownHostPolicy};

use crate::host::{User, connect, follow, submission};
use crate::laptop::{running_in, wait_for};
use crate::ssh::{error, user};
use crate::sshd::{Cutter, Sshd, free_port, keygen, ssh_keygen};

/// The server as a remote that the user's `ssh` carries.
fn own(sshd: &Sshd) -> RemoteSpec {
    RemoteSpec { transport: Transport::Openssh, ..sshd.remote() }
}

#[tokio::test]
async fn the_users_own_ssh_carries_the_same_stream() {
    let sshd = Sshd::start();
    let mut link = connect(&own(&sshd), UnknownHostPolicy::AcceptNew, &user()).await.unwrap();
    link.submit(&submission(&["/bin/echo", "hi"], &[], &[]), &|_| ()).await.unwrap();
    assert_eq!(follow(&mut link).await.unwrap().stdout, b"hi\n");
    link.close().await;
    assert!(fs::read_to_string(sshd.path("known_hosts")).unwrap().contains("ssh-ed25519"));
}

#[tokio::test]
async fn its_link_may_be_cut_too_and_nothing_is_lost() {
    let sshd = Sshd::start();
    let cutter = Cutter::before(sshd.port).await;
    let spec = RemoteSpec { transport: Transport::Openssh, ..sshd.remote_at(cutter.port) };
    let quick = ReconnectPolicy { first: Duration::from_millis(50), ..ReconnectPolicy::default() };
    let mut link = connect(&spec, UnknownHostPolicy::AcceptNew, &user())
        .await
        .unwrap()
        .with_reconnect_policy(quick);
    let command = submission(&["/bin/sh", "-c", "seq 1 100000"], &[], &[]);
    cutter.cut_after(300_000);
    link.submit(&command, &|_| ()).await.unwrap();
    // What ssh has not read when a link is cut is lost with it, so how far each gets is chance.
    let late = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        cutter.cut_after(u64::MAX);
    };
    let (story, ()) = tokio::join!(follow(&mut link), late);
    let story = story.unwrap();
    let want: String = (1..=100_000).map(|i| format!("{i}\n")).collect();
    assert!(story.stdout == want.as_bytes(), "{} bytes", story.stdout.len());
    assert_eq!(story.outcome(), &Outcome::Done);
    assert!(cutter.links() > 1, "{} links", cutter.links());
}

#[tokio::test]
async fn its_refusals_have_our_codes_and_its_words() {
    let sshd = Sshd::start();
    let spec = own(&sshd);
    let failed = |spec: RemoteSpec| async move {
        error(connect(&spec, UnknownHostPolicy::Refuse, &user()).await).failure("box", "ssh")
    };
    let unknown = failed(spec.clone()).await;
    assert_eq!((unknown.code.as_str(), unknown.exit), ("host_key_unknown", Exit::Host));
    assert!(unknown.cause.unwrap().contains("Host key verification failed"));
    assert!(unknown.hints[0].contains("rgpu remote check box --accept-new"));

    keygen(&sshd.path("other"));
    let known = |name: &str, mark: &str| {
        let key = fs::read_to_string(sshd.path(name)).unwrap();
        format!("{mark}[127.0.0.1]:{} {key}", sshd.port)
    };
    fs::write(sshd.path("known_hosts"), known("other.pub", "")).unwrap();
    let changed = failed(spec.clone()).await;
    assert_eq!((changed.code.as_str(), changed.side), ("host_key_changed", Side::Transport));
    let cause = changed.cause.unwrap();
    assert!(cause.contains("SHA256:") && cause.contains("known_hosts:1"), "{cause}");
    assert!(!cause.contains("@@@"), "{cause}");

    let both = known("host_key.pub", "") + &known("host_key.pub", "@revoked ");
    fs::write(sshd.path("known_hosts"), both).unwrap();
    assert_eq!(failed(spec.clone()).await.code, "host_key_revoked");

    fs::write(sshd.path("known_hosts"), known("host_key.pub", "")).unwrap();
    fs::write(sshd.path("authorized_keys"), "").unwrap();
    let denied = failed(spec.clone()).await;
    assert_eq!((denied.code.as_str(), denied.side), ("permission_denied", Side::Host));
    assert!(denied.cause.unwrap().contains("Permission denied (publickey)"));

    let url = format!("ssh://127.0.0.1:{}", free_port());
    let refused = failed(RemoteSpec { url, ..spec.clone() }).await;
    assert_eq!(refused.code, "connection_refused");
    let unknown = failed(RemoteSpec { url: "no-such-host.invalid".into(), ..spec }).await;
    assert_eq!(unknown.code, "unknown_host");
}

#[tokio::test]
async fn settings_that_only_ssh_honours_hand_the_connection_over() {
    let sshd = Sshd::start();
    fs::write(sshd.path("revoked"), "").unwrap();
    sshd.client_config("RevokedHostKeys FOLDER/revoked");
    let user = user();
    let mut link = connect(&sshd.remote(), UnknownHostPolicy::AcceptNew, &user).await.unwrap();
    link.submit(&submission(&["/bin/echo", "hi"], &[], &[]), &|_| ()).await.unwrap();
    assert_eq!(follow(&mut link).await.unwrap().stdout, b"hi\n");
    assert!(
        user.heard().contains("your own ssh logs in: it has `revokedhostkeys"),
        "{}",
        user.heard()
    );
    link.close().await;

    let alone = RemoteSpec { transport: Transport::Builtin, ..sshd.remote() };
    let failure =
        error(connect(&alone, UnknownHostPolicy::Refuse, &user).await).failure("box", "ssh");
    assert_eq!((failure.code.as_str(), failure.exit), ("needs_openssh", Exit::Config));
    assert!(failure.hints[0].contains("transport = \"openssh\""), "{:?}", failure.hints);

    fs::copy(sshd.path("host_key.pub"), sshd.path("revoked")).unwrap();
    let failure = error(connect(&sshd.remote(), UnknownHostPolicy::Refuse, &user).await)
        .failure("box", "ssh");
    assert_eq!(failure.code, "host_key_revoked", "{:?}", failure.cause);
}

#[tokio::test]
async fn a_proxy_command_is_carried_by_either_client() {
    let sshd = Sshd::start();
    sshd.client_config(&format!(
        "Host gpu\n  HostName 127.0.0.1\n  Port {port}\n  ProxyCommand ssh -F FOLDER/ssh_config \
         -o StrictHostKeyChecking=no -p {port} -W %h:%p 127.0.0.1\n",
        port = sshd.port
    ));
    let mut spec = RemoteSpec::new("box", "gpu");
    spec.ssh_config = Some(sshd.path("ssh_config"));
    for transport in [Transport::Openssh, Transport::Builtin] {
        let spec = RemoteSpec { transport, ..spec.clone() };
        connect(&spec, UnknownHostPolicy::AcceptNew, &user()).await.unwrap().close().await;
    }
}

/// The private half of a FIDO key that is in no device: made by hand, and read by ssh-keygen.
const HARDWARE_KEY: &str = "\
-----BEGIN OPENSSH PRIVATE KEY-----
b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAASgAAABpzay1zc2
gtZWQyNTUxOUBvcGVuc3NoLmNvbQAAACBYZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZm
ZmZmZgAAAARzc2g6AAAAgBEiM0QRIjNEAAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY2
9tAAAAIFhmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmAAAABHNzaDoBAAAAE2hh
bmRsZSBvZiBubyBkZXZpY2UAAAAAAAAACXN5bnRoZXRpYwECAwQF
-----END OPENSSH PRIVATE KEY-----
";

#[test]
fn keys_and_tickets_that_russh_lacks_are_tried_by_ssh_and_both_refusals_are_told() {
    let sshd = Sshd::start().restart("GSSAPIAuthentication yes");
    sshd.client_config("GSSAPIAuthentication yes");
    fs::write(sshd.path("authorized_keys"), "").unwrap();
    let check = |tools: &str| {
        let mut command = rgpu(&sshd, Transport::Auto, "remote check --accept-new -v");
        command.env("PATH", format!("{}:/usr/bin:/bin", sshd.path(tools).display()));
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, said) = check("none");
    assert_eq!(status, Some(4), "{said}");
    assert!(!said.contains("your own ssh logs in"), "{said}");

    // A user with a ticket, which is all that is looked at.
    fs::create_dir(sshd.path("tools")).unwrap();
    fs::write(sshd.path("tools/klist"), "#!/bin/sh\ntest \"$*\" = -s\n").unwrap();
    fs::set_permissions(sshd.path("tools/klist"), fs::Permissions::from_mode(0o755)).unwrap();
    let (status, said) = check("tools");
    assert_eq!(status, Some(4), "{said}");
    assert!(said.contains("your own ssh logs in: you have a Kerberos ticket"), "{said}");
    assert!(said.contains("then your own ssh: "), "{said}");
    assert!(!said.contains("let your own ssh log in"), "{said}");

    fs::write(sshd.path("id"), HARDWARE_KEY).unwrap();
    fs::remove_file(sshd.path("id.pub")).unwrap();
    let (status, said) = check("none");
    assert_eq!(status, Some(4), "{said}");
    assert!(said.contains("is a hardware key"), "{said}");
    assert!(said.contains("then your own ssh: "), "{said}");
}

#[tokio::test]
async fn a_passphrase_is_asked_for_where_somebody_is_there() {
    let sshd = Sshd::start();
    let key = sshd.path("id");
    ssh_keygen(&["-q", "-p", "-N", "secret", "-f", key.to_str().unwrap()]);
    let nobody = user();
    let denied = error(connect(&sshd.remote(), UnknownHostPolicy::AcceptNew, &nobody).await);
    assert_eq!(denied.code(), "permission_denied");
    assert!(!nobody.heard().contains("your own ssh"), "{}", nobody.heard());
    // Somebody, though without a terminal of this test's own: ssh tries, and is denied as well.
    let somebody = Arc::new(User { attended: true, ..User::default() });
    let denied = error(connect(&sshd.remote(), UnknownHostPolicy::Refuse, &somebody).await);
    assert_eq!(denied.code(), "permission_denied");
    assert!(somebody.heard().contains("has a passphrase"), "{}", somebody.heard());
}

/// `rgpu` with the server as its only remote.
fn rgpu(sshd: &Sshd, transport: Transport, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rgpu"));
    command.args(arguments.split(' '));
    at_home(&mut command, sshd, transport);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Nothing of the real user's is read.
fn at_home(command: &mut Command, sshd: &Sshd, transport: Transport) {
    crate::host::agent();
    let transport = match transport {
        Transport::Auto => "auto",
        Transport::Builtin => "builtin",
        Transport::Openssh => "openssh",
    };
    let config = format!(
        "default_remote = \"box\"\n[remote.box]\nurl = \"ssh://{}@127.0.0.1:{}\"\n\
         ssh_config = \"{}\"\ntransport = \"{transport}\"\n",
        sshd.user,
        sshd.port,
        sshd.path("ssh_config").display()
    );
    let file = sshd.path("config.toml");
    fs::write(&file, config).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    fs::create_dir_all(sshd.path("project")).unwrap();
    command
        .current_dir(sshd.path("project"))
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("SHELL", "/bin/sh")
        .env("TERM", "xterm")
        .env("HOME", sshd.path("laptop"))
        .env("RGPU_CONFIG", file);
}

/// `rgpu` on a terminal of its own: what it shows is read, and keys are pressed.
struct Terminal {
    child: std::process::Child,
    shown: Arc<std::sync::Mutex<Vec<u8>>>,
}

impl Terminal {
    fn start(sshd: &Sshd, transport: Transport, arguments: &str) -> Self {
        let line = format!("exec {} {arguments}", env!("CARGO_BIN_EXE_rgpu"));
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]);
        at_home(&mut command, sshd, transport);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let shown = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (mut from, to) = (child.stdout.take().unwrap(), shown.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut buffer) {
                to.lock().unwrap().extend_from_slice(&buffer[..n]);
            }
        });
        Self { child, shown }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    fn wait_for(&self, words: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        while !self.text().contains(words) {
            assert!(Instant::now() < end, "`{words}` was not shown:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn press(&mut self, keys: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(keys.as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    fn end(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        (status.code(), self.text())
    }
}

#[test]
fn questions_of_ssh_are_answered_on_the_terminal() {
    let sshd = Sshd::start();
    let key = sshd.path("id");
    ssh_keygen(&["-q", "-p", "-N", "secret", "-f", key.to_str().unwrap()]);
    let mut terminal = Terminal::start(&sshd, Transport::Openssh, "exec -- echo it ran");
    terminal.wait_for("Are you sure you want to continue connecting");
    terminal.press("yes\n");
    terminal.wait_for("Enter passphrase for key");
    terminal.press("secret\n");
    let (status, shown) = terminal.end();
    assert_eq!(status, Some(0), "{shown}");
    assert!(shown.contains("it ran"), "{shown}");
    // Known by now; on our own, because of the passphrase.
    let mut terminal = Terminal::start(&sshd, Transport::Auto, "exec -- echo again");
    terminal.wait_for("your own ssh logs in");
    terminal.wait_for("Enter passphrase for key");
    terminal.press("secret\n");
    let (status, shown) = terminal.end();
    assert_eq!(status, Some(0), "{shown}");
    assert!(shown.contains("again"), "{shown}");
}

#[test]
fn ctrl_c_cancels_the_job_and_does_not_kill_its_carrier() {
    let sshd = Sshd::start();
    let (started, late) = (sshd.path("started"), sshd.path("late"));
    let script =
        format!("'touch {}; echo ready; sleep 1000; touch {}'", started.display(), late.display());
    let mut terminal =
        Terminal::start(&sshd, Transport::Openssh, &format!("exec --accept-new -- sh -c {script}"));
    terminal.wait_for("ready");
    terminal.press("\x03");
    let (status, shown) = terminal.end();
    assert_eq!(status, Some(130), "{shown}");
    assert!(!shown.contains("link"), "{shown}");
    // Its shell names the file.
    wait_for("the program's end", || running_in(&late).is_empty().then_some(()));
    assert!(started.exists() && !late.exists());
}
