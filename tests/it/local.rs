//! The local remote: this machine's own agent, without any network.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use rgpu_protocol::Outcome;
use rgpu_remote::{ReconnectPolicy, RemoteSpec, UnknownHostPolicy};

use crate::host::{User, connect, files_in, follow, submission, wait_until};

/// The agents that this process has started and that still run.
fn agents() -> Vec<i32> {
    let own = std::process::id().to_string();
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid: &i32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
            stat.contains("(rgpu-agent)") && after.split_whitespace().nth(1) == Some(&own)
        })
        .collect()
}

#[tokio::test]
async fn a_local_agent_that_is_killed_is_started_again_and_nothing_is_lost() {
    let user = Arc::new(User::default());
    let quick = ReconnectPolicy { first: Duration::from_millis(20), ..ReconnectPolicy::default() };
    let spec = RemoteSpec::local();
    let mut link = connect(&spec, UnknownHostPolicy::Refuse, &user)
        .await
        .unwrap()
        .with_reconnect_policy(quick);
    let folder = tempfile::tempdir().unwrap();
    let (began, go) = (folder.path().join("began"), folder.path().join("go"));
    let script = format!(
        "echo 1; touch {}; until [ -e {} ]; do sleep 0.05; done; echo 2",
        began.display(),
        go.display()
    );
    link.submit(&submission(&["/bin/sh", "-c", &script], &[], &[]), &|_| ()).await.unwrap();
    let killer = async {
        wait_until("the program", || began.exists()).await;
        let agents = agents();
        assert_eq!(agents.len(), 1);
        let status = std::process::Command::new("kill")
            .args(["-9", &agents[0].to_string()])
            .status()
            .unwrap();
        assert!(status.success());
        wait_until("the link", || user.heard().contains("link back")).await;
        fs::write(&go, "").unwrap();
    };
    let (story, ()) = tokio::join!(follow(&mut link), killer);
    let story = story.unwrap();
    assert_eq!(story.stdout, b"1\n2\n");
    assert_eq!(story.outcome(), &Outcome::Done);
}

#[tokio::test]
async fn the_agent_is_started_through_what_the_user_says() {
    let home = tempfile::tempdir().unwrap();
    let mut spec = RemoteSpec::local();
    spec.via = vec!["env".into(), format!("HOME={}", home.path().display())];
    let user = Arc::new(User::default());
    for _ in 0..2 {
        let mut link = connect(&spec, UnknownHostPolicy::Refuse, &user).await.unwrap();
        let command = submission(&["/bin/sh", "-c", "echo $HOME"], &[], &[]);
        link.submit(&command, &|_| ()).await.unwrap();
        let story = follow(&mut link).await.unwrap();
        assert_eq!(story.stdout, format!("{}\n", home.path().display()).as_bytes());
        link.close().await;
    }
    assert_eq!(user.heard().matches("has no agent of this version").count(), 1);
    let agents = files_in(&home.path().join(".cache/rgpu/bin"));
    assert_eq!(agents.len(), 1);
}
