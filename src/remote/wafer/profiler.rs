//! Wafer's own ncu: `POST /v1/ncu/run` with a folder as a tar archive, its stream, and then
//! `GET /v1/ncu/run/JOB/report`.
//!
//! The wire is that of `wafer-ai` 0.0.13 (`tool ncu run`); later clients no longer have it, and
//! whether the live service still does was not seen. So nothing is built on it: a service that
//! answers 404, 405, 410 or 501 has none, and every other refusal has its name. What is not known
//! is taken for the worse:
//!
//! - `[EXIT:n]` does not end the stream, `[DONE]` and `[ERROR]` do, and one that just stops has
//!   failed, unless a report was announced;
//! - program and service speak on the same lines, so an end or a report that a program "announces"
//!   costs at most this rung: what counts is the report that is fetched, and what is in it;
//! - the report has no length and no digest: it is written beside its place, and only the importer
//!   says whether it is whole;
//! - nothing of it can be cancelled, or taken up again after a cut.

use std::path::Path;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use percent_encoding::utf8_percent_encode;
use tokio::time::{Instant, timeout_at};

use super::api::Api;
use super::error::WaferError;
use super::exec::nonce;
use super::refusal::Refusal;
use super::sse::{SseLine, SseStream};
use super::workspace::PART;
use crate::remote::foreign_text::shown;
use crate::remote::provider_ncu::{MAX_OUTPUT_BYTES, ProviderJob, ProviderResult};
use crate::remote::{Bills, Meter, RemoteError, UserPrompt};

/// The most bytes of files that are sent: the archive is held in memory, here and there.
const MAX_UPLOAD_BYTES: u64 = 512 << 20;

/// What the service may take beyond the limits that it was given: the archive is unpacked, an
/// environment may be made for it.
const SERVICE_MARGIN: Duration = Duration::from_secs(120);

/// The longest that a GPU is waited for, as the published client has it: what longer times the
/// service takes is not known.
const MAX_GPU_WAIT: Duration = Duration::from_secs(300);

/// The longest report, in bytes.
const MAX_REPORT_BYTES: u64 = 2 << 30;

/// Tries of the report, and the pause before the second.
const MAX_TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(500);

const DOING: &str = "running Wafer's own ncu";
const FETCHING: &str = "fetching the report of Wafer's own ncu";

/// Runs a program there; the report lies at `report` where one was made.
///
/// # Errors
/// The link, a refusal, or our own disk.
pub(super) async fn profile(
    api: &Api,
    job: &ProviderJob,
    report: &Path,
    bills: &Bills,
    talk: &dyn UserPrompt,
) -> Result<ProviderResult, RemoteError> {
    let (kind, body) = form(job, archive(job)?)?;
    let limit = job.limit + job.queue.min(MAX_GPU_WAIT) + SERVICE_MARGIN;
    let sent = api.send_form("/v1/ncu/run", &kind, body, DOING, limit).await;
    let mut stream = sent.map_err(|error| match error {
        // A service that never had it, or no longer has.
        WaferError::Foreign { .. } => WaferError::NoServedNcu { words: error.to_string() },
        WaferError::Refused(refusal) if matches!(refusal.status, 404 | 405 | 410 | 501) => {
            WaferError::NoServedNcu { words: refusal.body }
        }
        other => other,
    })?;
    let mut heard = StreamResult::default();
    let mut meter = Meter::new(bills);
    let told =
        timeout_at(Instant::now() + limit, listen(&mut stream, &mut heard, &mut meter, talk));
    match told.await {
        Ok(Ok(())) => {}
        // The stream broke when all had been said that matters.
        Ok(Err(_)) | Err(_) if heard.report.is_some() => {}
        Ok(Err(error)) => return Err(error.into()),
        Err(_) => return Err(WaferError::Silent { doing: DOING, limit }.into()),
    }
    drop(meter);
    let mut end = heard.end;
    if let Some(id) = heard.report {
        end.report = fetch(api, &id, report).await?;
    }
    Ok(end)
}

/// What a stream has said.
#[derive(Default)]
struct StreamResult {
    end: ProviderResult,
    /// The name under which the report can be fetched.
    report: Option<String>,
}

async fn listen(
    stream: &mut SseStream,
    heard: &mut StreamResult,
    meter: &mut Meter,
    talk: &dyn UserPrompt,
) -> Result<(), WaferError> {
    while let Some(line) = stream.next().await? {
        match line {
            SseLine::Phase(words) => {
                talk.starting(&words);
                if words.starts_with("GPU ") && heard.end.notes.len() < 8 {
                    heard.end.notes.push(shown(&words));
                }
            }
            SseLine::Billing(words) => {
                if let Some(words) = meter.read(&words) {
                    talk.starting(words);
                }
            }
            SseLine::Status(status) => talk.starting(&status.replace('_', " ")),
            SseLine::Report(id) => heard.report = Some(id),
            SseLine::Error(words) => {
                return Err(match Refusal::said(&words) {
                    Some(refusal) => WaferError::Refused(Box::new(refusal)),
                    None => WaferError::Command { doing: DOING, words: shown(&words) },
                });
            }
            SseLine::Exit(status) => heard.end.exit = status.or(Some(1)),
            SseLine::Done => return Ok(()),
            SseLine::Ssh | SseLine::Notice => {}
            SseLine::Text(text) => {
                let output = &mut heard.end.output;
                output.push_str(&text);
                output.push('\n');
                if output.len() > 2 * MAX_OUTPUT_BYTES {
                    let mut from = output.len() - MAX_OUTPUT_BYTES..output.len();
                    let from = from.find(|at| output.is_char_boundary(*at)).unwrap_or(0);
                    output.drain(..from);
                }
            }
        }
    }
    match heard.report {
        Some(_) => Ok(()),
        None => {
            let why = "the stream stopped, and said nothing of a report".to_owned();
            Err(WaferError::Cut { doing: DOING, why })
        }
    }
}

/// Fetches a report; whether there is one.
async fn fetch(api: &Api, id: &str, to: &Path) -> Result<bool, RemoteError> {
    let path = format!("/v1/ncu/run/{}/report", utf8_percent_encode(id, PART));
    let (mut tries, mut pause) = (1, PAUSE);
    loop {
        match api.download(&path, to, MAX_REPORT_BYTES, FETCHING).await {
            Err(RemoteError::Wafer(WaferError::Refused(refusal))) if refusal.status == 404 => {
                return Ok(false);
            }
            Err(error) if error.is_link() && tries < MAX_TRIES => {
                tokio::time::sleep(pause).await;
                pause *= 2;
                tries += 1;
            }
            done => return done.map(|()| true),
        }
    }
}

/// The job's folder as the service takes it. Names of files were checked when they were packed.
fn archive(job: &ProviderJob) -> Result<Vec<u8>, RemoteError> {
    let local = |why: String| WaferError::Local {
        what: "the folder for Wafer's own ncu cannot be packed".to_owned(),
        why,
    };
    let files = &job.files.plan.files;
    let bytes: u64 = files.iter().map(|file| file.size).fold(0, u64::saturating_add);
    if bytes > MAX_UPLOAD_BYTES {
        return Err(
            local(format!("it is {bytes} bytes, and {MAX_UPLOAD_BYTES} are sent at most")).into()
        );
    }
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let packed = |e: std::io::Error| RemoteError::Wafer(local(e.to_string()));
    for folder in &job.folders {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_size(0);
        header.set_mode(0o755);
        tar.append_data(&mut header, format!("{folder}/"), std::io::empty()).map_err(packed)?;
    }
    for file in files {
        let mut content = Vec::with_capacity(usize::try_from(file.size).unwrap_or(0));
        for digest in &file.blobs {
            let piece = job.files.blobs.open(digest);
            let unread = |e| local(format!("`{}`: {e}", file.path));
            content.extend(piece.map_err(unread)?);
        }
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(if file.executable { 0o755 } else { 0o644 });
        tar.append_data(&mut header, &file.path, &*content).map_err(packed)?;
    }
    tar.into_inner().and_then(GzEncoder::finish).map_err(packed)
}

/// The body of the request, with its type.
fn form(job: &ProviderJob, archive: Vec<u8>) -> Result<(String, Vec<u8>), RemoteError> {
    let boundary = format!("rgpu-{}", nonce());
    let joined = |words: &[String]| {
        shlex::try_join(words.iter().map(String::as_str)).map_err(|e| WaferError::Local {
            what: "a command cannot be written".to_owned(),
            why: e.to_string(),
        })
    };
    let fields = [
        ("command", joined(&job.program)?),
        ("ncu_args", joined(&job.arguments)?),
        ("timeout_seconds", job.limit.as_secs().to_string()),
        ("queue_timeout_seconds", job.queue.min(MAX_GPU_WAIT).as_secs().to_string()),
    ];
    let part =
        |name: &str| format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"");
    let mut body: Vec<u8> = fields
        .iter()
        .flat_map(|(name, value)| format!("{}\r\n\r\n{value}\r\n", part(name)).into_bytes())
        .collect();
    body.extend(part("tarball").bytes());
    body.extend(b"; filename=\"workspace.tar.gz\"\r\nContent-Type: application/gzip\r\n\r\n");
    body.extend(archive);
    body.extend(format!("\r\n--{boundary}--\r\n").bytes());
    Ok((format!("multipart/form-data; boundary={boundary}"), body))
}
