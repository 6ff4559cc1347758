//! Host certificates and revoked keys, by our own reader of known_hosts and by OpenSSH's, against a
//! real server with certificates of ssh-keygen.

use std::fs;

use rgpu_remote::{RemoteSpec, Transport, UnknownHostPolicy};

use crate::host::connect;
use crate::ssh::{error, user};
use crate::sshd::{Sshd, keygen, ssh_keygen};

/// A server whose host key is signed by an authority, with `flags` of ssh-keygen.
fn certified(flags: &[&str]) -> Sshd {
    let sshd = Sshd::start();
    keygen(&sshd.path("authority"));
    let (authority, key) = (sshd.path("authority"), sshd.path("host_key.pub"));
    let first = ["-q", "-s", authority.to_str().unwrap(), "-I", "box"];
    ssh_keygen(&[&first, flags, &[key.to_str().unwrap()]].concat());
    sshd.restart("HostCertificate FOLDER/host_key-cert.pub")
}

fn key(sshd: &Sshd, name: &str) -> String {
    fs::read_to_string(sshd.path(name)).unwrap().trim().to_owned()
}

#[tokio::test]
async fn a_certificate_of_a_known_authority_is_enough_for_both_clients() {
    let sshd = certified(&["-h", "-n", "other,127.0.0.1", "-V", "+1h"]);
    for names in ["[127.0.0.1]:*", "*", "127.0.0.1", "!box,127.*"] {
        let line = format!("@cert-authority {names} {}\n", key(&sshd, "authority.pub"));
        fs::write(sshd.path("known_hosts"), line).unwrap();
        connect(&sshd.remote(), UnknownHostPolicy::Refuse, &user()).await.unwrap().close().await;
    }
    let spec = RemoteSpec { transport: Transport::Openssh, ..sshd.remote() };
    let line = format!("@cert-authority * {}\n", key(&sshd, "authority.pub"));
    fs::write(sshd.path("known_hosts"), line).unwrap();
    connect(&spec, UnknownHostPolicy::Refuse, &user()).await.unwrap().close().await;
}

#[tokio::test]
async fn a_certificate_that_does_not_hold_is_refused_with_the_reason() {
    for (flags, why) in [
        (&["-h", "-n", "127.0.0.1", "-V", "-2h:-1h"][..], "it has expired"),
        (&["-h", "-n", "127.0.0.1", "-V", "+1h:+2h"], "it is not valid yet"),
        // As in OpenSSH, a certificate's names are no patterns.
        (&["-h", "-n", "gpu.lab,127.*", "-V", "+1h"], "it is for gpu.lab, 127.*"),
    ] {
        let sshd = certified(flags);
        let line = format!("@cert-authority * {}\n", key(&sshd, "authority.pub"));
        fs::write(sshd.path("known_hosts"), line).unwrap();
        let refused = error(connect(&sshd.remote(), UnknownHostPolicy::AcceptNew, &user()).await);
        let failure = refused.failure("box", "ssh");
        assert_eq!(failure.code, "host_certificate");
        assert!(failure.what.ends_with(why), "{}", failure.what);
    }
}

#[tokio::test]
async fn a_revoked_authority_or_certified_key_is_refused() {
    let sshd = certified(&["-h", "-n", "127.0.0.1", "-V", "+1h"]);
    let authority = key(&sshd, "authority.pub");
    for revoked in [&authority, &key(&sshd, "host_key.pub")] {
        let lines = format!("@cert-authority * {authority}\n@revoked * {revoked}\n");
        fs::write(sshd.path("known_hosts"), lines).unwrap();
        let refused = error(connect(&sshd.remote(), UnknownHostPolicy::AcceptNew, &user()).await);
        assert_eq!(refused.code(), "host_key_revoked");
    }
}

#[tokio::test]
async fn a_certificate_of_somebody_else_says_nothing_about_a_host() {
    let sshd = certified(&["-h", "-n", "127.0.0.1", "-V", "+1h"]);
    keygen(&sshd.path("stranger"));
    let line = format!("@cert-authority * {}\n", key(&sshd, "stranger.pub"));
    fs::write(sshd.path("known_hosts"), &line).unwrap();
    let refused = error(connect(&sshd.remote(), UnknownHostPolicy::Refuse, &user()).await);
    assert_eq!(refused.code(), "host_key_unknown");
    // Its own key may be known all the same.
    let known = format!("{line}[127.0.0.1]:{} {}\n", sshd.port, key(&sshd, "host_key.pub"));
    fs::write(sshd.path("known_hosts"), known).unwrap();
    connect(&sshd.remote(), UnknownHostPolicy::Refuse, &user()).await.unwrap().close().await;
}
