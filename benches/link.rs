//! Runs jobs one after another on one open connection, through the library. It measures what a job
//! costs a program that keeps its connection. `benches/run` compares it with `ssh` over a
//! ControlMaster.
//!
//! `link URL SSH_CONFIG AGENT COUNT` prints the milliseconds of each job, from its submission to
//! its terminal event, as a JSON array.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use rgpu_protocol::plan::{Rung, Step, Success};
use rgpu_protocol::{Digest, Plan};
use rgpu_remote::options::NoPrompt;
use rgpu_remote::{
    BlobReader, ConnectOptions, HostLink, RemoteSpec, Submission, UnknownHostPolicy,
};

/// A job without files.
struct NoBlobs;

impl BlobReader for NoBlobs {
    fn open(&self, _: &Digest) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, config, agent, count] = words.as_slice() else {
        return Err("usage: link URL SSH_CONFIG AGENT COUNT".into());
    };
    let count: usize = count.parse()?;
    let mut spec = RemoteSpec::new("box", url);
    spec.ssh_config = Some(PathBuf::from(config));
    let options = ConnectOptions {
        agent: PathBuf::from(agent),
        unknown_host_policy: UnknownHostPolicy::AcceptNew,
        user_prompt: Arc::new(NoPrompt),
        run: String::new(),
        host_request: Default::default(),
    };
    let mut link = HostLink::connect(Arc::from(spec.open()?), options).await?;
    let mut times = Vec::new();
    for i in 0..count {
        let submission = job(&format!("bench-{}-{i}.1", std::process::id()));
        let begun = Instant::now();
        link.submit(&submission, &|_| ()).await?;
        while link.next().await?.is_some() {}
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    println!("{}", serde_json::to_string(&times)?);
    link.close().await;
    Ok(())
}

/// A plan that runs only `true`.
fn job(id: &str) -> Submission {
    let rung = Rung {
        id: "host".into(),
        needs: Vec::new(),
        argv: vec!["true".into()],
        env: BTreeMap::new(),
        cwd: String::new(),
        success: Success::default(),
        diagnosis: Vec::new(),
        artifacts: Vec::new(),
        loses: String::new(),
        stop: None,
        hang: None,
    };
    let step = Step {
        id: "run".into(),
        title: "run".into(),
        gpu: false,
        needs: Vec::new(),
        on_failure: Default::default(),
        timeout_s: 60,
        max_output_bytes: None,
        stdin: Default::default(),
        rungs: vec![rung],
    };
    let plan = Plan {
        job: id.to_owned(),
        title: "a benchmark".into(),
        origin: None,
        facts: None,
        files: Vec::new(),
        steps: vec![step],
        gpu: None,
        env: BTreeMap::new(),
        secrets: Vec::new(),
        limits: Default::default(),
    };
    Submission { plan, blobs: Arc::new(NoBlobs), secrets: BTreeMap::new() }
}
