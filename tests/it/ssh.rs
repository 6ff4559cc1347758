//! The ssh remote against a real OpenSSH server on loopback.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rgpu_model::error::{Exit, Side};
use rgpu_protocol::{EventBody, Outcome};
use rgpu_remote::{
    HostLink, ReconnectPolicy, RemoteError, RemoteFile, RemoteSpec, UnknownHostPolicy,
};

use crate::host::{self, User, connect, follow, submission};
use crate::laptop::running_in;
use crate::sshd::{Cutter, Sshd, free_port, keygen, ssh_keygen};

impl Sshd {
    /// This server as a remote.
    pub(crate) fn remote(&self) -> RemoteSpec {
        self.remote_at(self.port)
    }

    pub(crate) fn remote_at(&self, port: u16) -> RemoteSpec {
        let mut spec = RemoteSpec::new("box", format!("ssh://{}@127.0.0.1:{port}", self.user));
        spec.ssh_config = Some(self.path("ssh_config"));
        spec
    }

    async fn connect(&self) -> HostLink {
        connect(&self.remote(), UnknownHostPolicy::AcceptNew, &user()).await.unwrap()
    }
}

pub(crate) fn user() -> Arc<User> {
    Arc::new(User::default())
}

pub(crate) fn error(result: Result<HostLink, RemoteError>) -> RemoteError {
    match result {
        Ok(_) => panic!("this should not have connected"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_command_runs_over_ssh_with_its_output_and_events() {
    let sshd = Sshd::start();
    let mut link = sshd.connect().await;
    let command = submission(&["/bin/sh", "-c", "echo out; echo err >&2"], &[], &[]);
    link.submit(&command, &|_| ()).await.unwrap();
    let story = follow(&mut link).await.unwrap();
    assert_eq!(story.stdout, b"out\n");
    assert_eq!(story.stderr, b"err\n");
    assert_eq!(story.outcome(), &Outcome::Done);
    assert!(matches!(story.events[0], EventBody::Started { .. }));
    link.close().await;
}

#[tokio::test]
async fn the_agent_is_sent_once_and_then_found() {
    let sshd = Sshd::start();
    let user = user();
    for first in [true, false] {
        let remote = connect(&sshd.remote(), UnknownHostPolicy::AcceptNew, &user).await.unwrap();
        remote.close().await;
        assert_eq!(user.heard().contains("the host has no agent"), first, "{}", user.heard());
        user.heard.lock().unwrap().clear();
    }
    let folder = sshd.path("home/.cache/rgpu");
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::read_dir(folder.join("bin")).unwrap().count(), 1);
    // One command for each connection, with the upload and without.
    assert_eq!(sshd.log().matches("Starting session: command").count(), 2, "{}", sshd.log());
}

#[tokio::test]
async fn a_new_host_is_refused_asked_about_or_taken_as_was_said() {
    let sshd = Sshd::start();
    let spec = sshd.remote();
    let refused = error(connect(&spec, UnknownHostPolicy::Refuse, &user()).await);
    let failure = refused.failure("box", "ssh");
    assert_eq!((failure.exit, failure.side), (Exit::Host, Side::Transport));
    assert!(failure.cause.unwrap().contains("ssh-ed25519 SHA256:"));
    assert!(failure.hints[0].contains("rgpu remote check box --accept-new"));

    let no = user();
    let declined = error(connect(&spec, UnknownHostPolicy::Ask, &no).await);
    assert_eq!(declined.code(), "host_key_unknown");
    let question = no.asked.lock().unwrap()[0].clone();
    let print = Command::new("ssh-keygen")
        .arg("-lf")
        .arg(sshd.path("host_key.pub"))
        .output()
        .unwrap()
        .stdout;
    assert!(String::from_utf8(print).unwrap().contains(&question.fingerprint));
    assert!(!sshd.path("known_hosts").exists());

    let yes = Arc::new(User { says_yes: true, ..User::default() });
    connect(&spec, UnknownHostPolicy::Ask, &yes).await.unwrap().close().await;
    connect(&spec, UnknownHostPolicy::Refuse, &user()).await.unwrap().close().await;
    assert_eq!(fs::read_to_string(sshd.path("known_hosts")).unwrap().lines().count(), 1);
}

#[tokio::test]
async fn a_changed_host_key_is_refused_with_both_fingerprints_and_the_line() {
    let sshd = Sshd::start();
    keygen(&sshd.path("other"));
    let other = fs::read_to_string(sshd.path("other.pub")).unwrap();
    let line = format!("# mine\n[127.0.0.1]:{}\t{other}", sshd.port);
    fs::write(sshd.path("known_hosts"), line).unwrap();
    let failure = error(connect(&sshd.remote(), UnknownHostPolicy::AcceptNew, &user()).await)
        .failure("box", "ssh");
    assert_eq!(failure.code, "host_key_changed");
    let cause = failure.cause.unwrap();
    assert_eq!(cause.matches("SHA256:").count(), 2, "{cause}");
    assert!(cause.contains("known_hosts:2"), "{cause}");
}

#[tokio::test]
async fn a_revoked_host_key_is_refused() {
    let sshd = Sshd::start();
    let own = fs::read_to_string(sshd.path("host_key.pub")).unwrap();
    let lines = format!("[127.0.0.1]:{} {own}@revoked * {own}", sshd.port);
    fs::write(sshd.path("known_hosts"), lines).unwrap();
    let refused = error(connect(&sshd.remote(), UnknownHostPolicy::AcceptNew, &user()).await);
    assert_eq!(refused.code(), "host_key_revoked");
}

#[tokio::test]
async fn a_host_certificate_of_a_known_authority_is_enough() {
    let sshd = Sshd::start();
    keygen(&sshd.path("authority"));
    let (authority, key) = (sshd.path("authority"), sshd.path("host_key.pub"));
    let args = ["-q", "-s", authority.to_str().unwrap(), "-I", "box", "-h"];
    let args = [&args[..], &["-n", "127.0.0.1", "-V", "+1h", key.to_str().unwrap()]].concat();
    ssh_keygen(&args);
    let sshd = sshd.restart("HostCertificate FOLDER/host_key-cert.pub");
    let authority = fs::read_to_string(sshd.path("authority.pub")).unwrap();
    let line = format!("@cert-authority [127.0.0.1]:* {authority}");
    fs::write(sshd.path("known_hosts"), line).unwrap();
    connect(&sshd.remote(), UnknownHostPolicy::Refuse, &user()).await.unwrap().close().await;
}

#[tokio::test]
async fn permission_denied_says_what_was_tried() {
    let sshd = Sshd::start();
    fs::write(sshd.path("authorized_keys"), "").unwrap();
    let failure = error(connect(&sshd.remote(), UnknownHostPolicy::AcceptNew, &user()).await)
        .failure("box", "ssh");
    assert_eq!((failure.code.as_str(), failure.side), ("permission_denied", Side::Host));
    let cause = failure.cause.unwrap();
    assert!(cause.contains("/id` (ssh-ed25519)"), "{cause}");
    assert!(cause.contains("the server takes: publickey"), "{cause}");
}

#[tokio::test]
async fn a_key_with_a_passphrase_works_through_the_ssh_agent_only() {
    let sshd = Sshd::start();
    let key = sshd.path("id");
    ssh_keygen(&["-q", "-p", "-N", "secret", "-f", key.to_str().unwrap()]);
    let failure = error(connect(&sshd.remote(), UnknownHostPolicy::AcceptNew, &user()).await)
        .failure("box", "ssh");
    assert!(failure.cause.unwrap().contains("it has a passphrase"));
    assert!(failure.hints[0].contains("ssh-add"), "{:?}", failure.hints);

    let socket = sshd.path("agent.sock");
    let mut agent = Command::new("ssh-agent")
        .arg("-D")
        .arg("-a")
        .arg(&socket)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while !socket.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    fs::write(sshd.path("askpass"), "#!/bin/sh\necho secret\n").unwrap();
    fs::set_permissions(sshd.path("askpass"), fs::Permissions::from_mode(0o700)).unwrap();
    let added = Command::new("ssh-add")
        .arg(&key)
        .env("SSH_AUTH_SOCK", &socket)
        .env("SSH_ASKPASS", sshd.path("askpass"))
        .env("SSH_ASKPASS_REQUIRE", "force")
        .output()
        .unwrap();
    assert!(added.status.success(), "{added:?}");
    sshd.client_config(&format!("IdentityAgent {}", socket.display()));
    connect(&sshd.remote(), UnknownHostPolicy::AcceptNew, &user()).await.unwrap().close().await;
    let _ = agent.kill();
    let _ = agent.wait();
}

#[tokio::test]
async fn a_user_certificate_beside_the_key_logs_in() {
    let sshd = Sshd::start();
    keygen(&sshd.path("authority"));
    let (authority, key) = (sshd.path("authority"), sshd.path("id.pub"));
    let args = ["-q", "-s", authority.to_str().unwrap(), "-I", "me", "-n", &sshd.user];
    ssh_keygen(&[&args[..], &[key.to_str().unwrap()]].concat());
    fs::write(sshd.path("authorized_keys"), "").unwrap();
    let sshd = sshd.restart("TrustedUserCAKeys FOLDER/authority.pub");
    sshd.connect().await.close().await;
}

#[tokio::test]
async fn what_a_start_up_file_prints_is_skipped_and_shown() {
    let sshd = Sshd::start();
    let noise = "for i in 1 2 3; do echo welcome to the gpu box; done; echo mind the gap >&2\n";
    fs::write(sshd.path("home/.bashrc"), noise).unwrap();
    let user = user();
    let mut link = connect(&sshd.remote(), UnknownHostPolicy::AcceptNew, &user).await.unwrap();
    link.submit(&submission(&["/bin/echo", "hi"], &[], &[]), &|_| ()).await.unwrap();
    assert_eq!(follow(&mut link).await.unwrap().stdout, b"hi\n");
    // Only bash reads that file for a command, and only where it was built to.
    if fs::read_to_string("/etc/passwd").unwrap().contains("/bash") {
        assert!(user.heard().contains("welcome to the gpu box"), "{}", user.heard());
    }
}

#[tokio::test]
async fn an_alias_and_its_jump_host_come_from_the_ssh_configuration() {
    let (sshd, jump) = (Sshd::start(), Sshd::start());
    fs::copy(sshd.path("id.pub"), jump.path("authorized_keys")).unwrap();
    sshd.client_config(&format!(
        "Host gpu\n  HostName 127.0.0.1\n  Port {}\n  ProxyJump hop\n\
         Host hop\n  HostName 127.0.0.1\n  Port {}\n",
        sshd.port, jump.port
    ));
    let mut spec = RemoteSpec::new("box", "gpu");
    spec.ssh_config = Some(sshd.path("ssh_config"));
    let mut link = connect(&spec, UnknownHostPolicy::AcceptNew, &user()).await.unwrap();
    link.submit(&submission(&["/bin/echo", "far"], &[], &[]), &|_| ()).await.unwrap();
    assert_eq!(follow(&mut link).await.unwrap().stdout, b"far\n");
    assert!(jump.log().contains("Accepted publickey"), "{}", jump.log());
    assert_eq!(fs::read_to_string(sshd.path("known_hosts")).unwrap().lines().count(), 2);
}

#[tokio::test]
async fn a_jump_host_that_refuses_is_named() {
    let sshd = Sshd::start();
    let mut spec = sshd.remote();
    spec.jump = Some(format!("127.0.0.1:{}", free_port()));
    let failure =
        error(connect(&spec, UnknownHostPolicy::AcceptNew, &user()).await).failure("box", "ssh");
    assert!(failure.what.contains("jump host"), "{}", failure.what);
    assert!(failure.cause.unwrap().contains("refuses connections"));
}

#[tokio::test]
async fn a_proxy_command_carries_the_connection() {
    let sshd = Sshd::start();
    sshd.client_config(&format!(
        "Host gpu\n  HostName 127.0.0.1\n  Port {port}\n  ProxyCommand ssh -F FOLDER/ssh_config \
         -o StrictHostKeyChecking=no -p {port} -W %h:%p 127.0.0.1\n\
         Host wrong\n  HostName 127.0.0.1\n  ProxyCommand echo no way >&2; exit 1\n",
        port = sshd.port
    ));
    let mut spec = RemoteSpec::new("box", "gpu");
    spec.ssh_config = Some(sshd.path("ssh_config"));
    connect(&spec, UnknownHostPolicy::AcceptNew, &user()).await.unwrap().close().await;
    spec.url = "wrong".to_owned();
    let failure =
        error(connect(&spec, UnknownHostPolicy::AcceptNew, &user()).await).failure("box", "ssh");
    assert!(failure.what.ends_with("failed: no way"), "{}", failure.what);
}

#[tokio::test]
async fn an_output_cut_in_the_middle_arrives_whole() {
    let sshd = Sshd::start();
    let cutter = Cutter::before(sshd.port).await;
    let user = user();
    let quick = ReconnectPolicy { first: Duration::from_millis(50), ..ReconnectPolicy::default() };
    let mut link = connect(&sshd.remote_at(cutter.port), UnknownHostPolicy::AcceptNew, &user)
        .await
        .unwrap()
        .with_reconnect_policy(quick);
    let command = submission(&["/bin/sh", "-c", "seq 1 200000; seq 7 >&2"], &[], &[]);
    cutter.cut_after(400_000);
    link.submit(&command, &|_| ()).await.unwrap();
    let story = follow(&mut link).await.unwrap();
    let want: String = (1..=200_000).map(|i| format!("{i}\n")).collect();
    assert!(story.stdout == want.as_bytes(), "{} bytes", story.stdout.len());
    assert_eq!(story.stderr, b"1\n2\n3\n4\n5\n6\n7\n");
    assert_eq!(story.outcome(), &Outcome::Done);
    assert!(cutter.links() > 2, "{} links", cutter.links());
    assert!(user.heard().contains("link back"), "{}", user.heard());
}

#[tokio::test]
async fn a_cancelled_job_stops_and_says_so() {
    let sshd = Sshd::start();
    let mut link = sshd.connect().await;
    let (began, mark) = (sshd.path("began"), sshd.path("still-running"));
    let script = format!("touch {}; sleep 1000; touch {}", began.display(), mark.display());
    link.submit(&submission(&["/bin/sh", "-c", &script], &[], &[]), &|_| ()).await.unwrap();
    host::wait_until("the program", || began.exists()).await;
    link.cancel();
    let story = follow(&mut link).await.unwrap();
    assert_eq!(story.outcome(), &Outcome::Cancelled);
    // Its shell names the file.
    host::wait_until("the program's end", || running_in(&mark).is_empty()).await;
    assert!(!mark.exists());
}

/// Bytes that do not compress.
fn noise(n: usize) -> Vec<u8> {
    let mut x = 1_u32;
    let mut next = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 24) as u8
    };
    (0..n).map(|_| next()).collect()
}

#[tokio::test]
async fn twenty_mebibytes_go_up_once_and_come_back_as_they_were() {
    let sshd = Sshd::start();
    let bytes = noise(20 << 20);
    let run = || submission(&["/bin/cp", "in/data", "copy"], &[("in/data", &bytes)], &["copy"]);
    let mut link = sshd.connect().await;
    let first = link.submit(&run(), &|_| ()).await.unwrap();
    assert_eq!((first.blobs, first.bytes), (20, 20 << 20));
    let story = follow(&mut link).await.unwrap();
    assert_eq!(story.outcome(), &Outcome::Done);

    let again = run();
    assert_eq!(link.submit(&again, &|_| ()).await.unwrap().bytes, 0);
    let story = follow(&mut link).await.unwrap();
    let wanted = story
        .events
        .iter()
        .find_map(|event| RemoteFile::from_event(&again.plan.job, event))
        .unwrap();
    let dest = sshd.path("fetched");
    link.fetch(&wanted, &dest, None, &|_| ()).await.unwrap();
    assert!(fs::read(&dest).unwrap() == bytes);

    let wrong =
        RemoteFile { digest: host::digest(b"something else"), composite: None, ..wanted.clone() };
    let dest = sshd.path("damaged");
    let refused = link.fetch(&wrong, &dest, None, &|_| ()).await.unwrap_err();
    assert!(matches!(refused, RemoteError::Damaged { .. }), "{refused:?}");
    assert!(host::files_in(&sshd.path("")).iter().all(|file| !file.ends_with("damaged")));
}

#[tokio::test]
async fn an_upload_cut_in_the_middle_goes_on_with_what_is_missing() {
    let sshd = Sshd::start();
    let cutter = Cutter::before(sshd.port).await;
    let bytes = noise(12 << 20);
    let quick = ReconnectPolicy { first: Duration::from_millis(50), ..ReconnectPolicy::default() };
    let mut link = connect(&sshd.remote_at(cutter.port), UnknownHostPolicy::AcceptNew, &user())
        .await
        .unwrap()
        .with_reconnect_policy(quick);
    let command = submission(&["/bin/cksum", "data"], &[("data", &bytes)], &[]);
    // The key exchange alone brings 2 to 4 KiB; each confirmed blob about 200 bytes.
    cutter.cut_after(6_000);
    let late = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        cutter.cut_after(u64::MAX);
    };
    let (uploaded, ()) = tokio::join!(link.submit(&command, &|_| ()), late);
    uploaded.unwrap();
    assert_eq!(follow(&mut link).await.unwrap().outcome(), &Outcome::Done);
}

#[tokio::test]
async fn a_large_bundle_over_a_long_link_takes_several_channels() {
    let sshd = Sshd::start();
    let far = Cutter::far_from(sshd.port, Duration::from_millis(20)).await;
    let bytes = noise(12 << 20);
    let mut link =
        connect(&sshd.remote_at(far.port), UnknownHostPolicy::AcceptNew, &user()).await.unwrap();
    let command = submission(&["/bin/cksum", "data"], &[("data", &bytes)], &[]);
    let uploaded = link.submit(&command, &|_| ()).await.unwrap();
    // A stream that comes late may find nothing left.
    assert!(uploaded.blobs == 12 && (2..=10).contains(&uploaded.streams), "{uploaded:?}");
    assert_eq!(follow(&mut link).await.unwrap().outcome(), &Outcome::Done);
    // One TCP connection carried them all.
    assert_eq!(far.links(), 1);
}

#[tokio::test]
async fn a_host_that_grants_few_channels_still_takes_a_large_bundle() {
    let sshd = Sshd::start().restart("MaxSessions 2");
    let far = Cutter::far_from(sshd.port, Duration::from_millis(20)).await;
    let bytes = noise(12 << 20);
    let mut link =
        connect(&sshd.remote_at(far.port), UnknownHostPolicy::AcceptNew, &user()).await.unwrap();
    let command = submission(&["/bin/cksum", "data"], &[("data", &bytes)], &[]);
    let uploaded = link.submit(&command, &|_| ()).await.unwrap();
    assert!(uploaded.blobs == 12 && (1..=2).contains(&uploaded.streams), "{uploaded:?}");
    assert_eq!(follow(&mut link).await.unwrap().outcome(), &Outcome::Done);
}

#[tokio::test]
async fn every_login_shell_that_is_here_starts_the_agent() {
    for shell in ["sh", "bash", "dash", "zsh", "fish", "tcsh", "csh", "ksh", "busybox sh"] {
        let mut words = shell.split(' ');
        let program = words.next().unwrap();
        let found = Command::new("sh")
            .args(["-c", "command -v \"$0\"", program])
            .stdout(Stdio::null())
            .status()
            .unwrap();
        if !found.success() {
            continue;
        }
        let force = format!("ForceCommand exec {shell} -c \"$SSH_ORIGINAL_COMMAND\"");
        let sshd = Sshd::start().restart(&force);
        // With the agent sent, and with it found.
        for _ in 0..2 {
            match connect(&sshd.remote(), UnknownHostPolicy::AcceptNew, &user()).await {
                Ok(link) => {
                    link.close().await;
                }
                Err(error) => panic!("{shell}: {}", error.failure("box", "ssh")),
            }
        }
    }
}

#[tokio::test]
async fn a_start_command_that_fails_is_told_with_its_last_words() {
    let sshd = Sshd::start().restart("ForceCommand echo go away; echo for good >&2; exit 3");
    let failure = error(connect(&sshd.remote(), UnknownHostPolicy::AcceptNew, &user()).await)
        .failure("box", "ssh");
    assert_eq!((failure.code.as_str(), failure.side), ("agent_start", Side::Host));
    assert!(failure.what.ends_with("it exited with status 3"), "{}", failure.what);
    assert_eq!(failure.cause.as_deref(), Some("for good"));
}

#[tokio::test]
async fn a_folder_that_others_may_write_is_passed_over() {
    let sshd = Sshd::start();
    let shared = sshd.path("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
    let mut spec = sshd.remote();
    spec.agent_folder = Some(shared.to_str().unwrap().to_owned());
    connect(&spec, UnknownHostPolicy::AcceptNew, &user()).await.unwrap().close().await;
    assert!(host::files_in(&shared).is_empty());
    assert!(sshd.path("home/.cache/rgpu/bin").exists());
}

#[tokio::test]
async fn ways_not_to_reach_a_host_are_told_apart() {
    let sshd = Sshd::start();
    let refused =
        error(connect(&sshd.remote_at(free_port()), UnknownHostPolicy::Refuse, &user()).await);
    assert_eq!(refused.code(), "connection_refused");
    let mut unknown = RemoteSpec::new("box", "no-such-host.invalid");
    unknown.ssh_config = Some(sshd.path("ssh_config"));
    let unknown = error(connect(&unknown, UnknownHostPolicy::Refuse, &user()).await);
    assert_eq!(unknown.code(), "unknown_host");
    let evil = RemoteSpec::new("box", "ssh://-oProxyCommand=id").open();
    assert_eq!(evil.err().unwrap().failure("box", "ssh").exit, Exit::Config);
}

#[tokio::test]
async fn an_agent_for_another_machine_is_not_sent() {
    let sshd = Sshd::start();
    let mut program = fs::read(host::agent()).unwrap();
    // e_machine: AArch64, or x86-64 on such a machine.
    let other = if cfg!(target_arch = "aarch64") { 62_u16 } else { 183 };
    program[18..20].copy_from_slice(&other.to_le_bytes());
    let agent = sshd.path("foreign-agent");
    fs::write(&agent, program).unwrap();
    let options = rgpu_remote::ConnectOptions {
        agent,
        unknown_host_policy: UnknownHostPolicy::AcceptNew,
        user_prompt: user(),
        run: String::new(),
        host_request: Default::default(),
    };
    let remote = Arc::from(sshd.remote().open().unwrap());
    let error = error(HostLink::connect(remote, options).await);
    assert!(matches!(error, RemoteError::Unfit { .. }), "{error:?}");
    assert!(host::files_in(&sshd.path("home")).is_empty());
}
