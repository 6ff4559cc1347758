//! Wafer's own ncu: `POST /v1/ncu/run` with a folder as a tar archive, answered by a stream, then
//! `GET /v1/ncu/run/JOB/report`.
//!
//! The format is that of `wafer-ai` 0.0.13 (`tool ncu run`). Later clients no longer use it, and we
//! have not seen whether the live service still has it. So nothing depends on it: a service that
//! answers 404, 405, 410 or 501 does not have it, and every other refusal has its own code.
//! Unknowns are handled conservatively:
//!
//! - `[EXIT:n]` does not end the stream; `[DONE]` and `[ERROR]` do. A stream that just stops has
//!   failed, unless a report was announced.
//! - Program and service print on the same lines, so a forged end or report costs at most this
//!   rung: only the fetched report and its content count.
//! - The report has no length and no digest. It is written beside its destination, and only the
//!   importer decides whether it is complete.
//! - Nothing can be cancelled or resumed after a cut.

use std::path::Path;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use percent_encoding::utf8_percent_encode;
use tokio::time::{Instant, timeout_at};

use super::api::Api;
use super::error::WaferError;
use super::sse::{SseLine, SseStream};
use super::workspace::PATH_SEGMENT;
use crate::foreign_text::excerpt;
use crate::http::{Attempts, HttpError};
use crate::mail::nonce;
use crate::provider_ncu::{MAX_OUTPUT_BYTES, ProviderJob, ProviderResult};
use crate::{BillReader, PendingBills, RemoteError, UserPrompt};

/// The most bytes of files sent; the archive is held in memory on both sides.
const MAX_UPLOAD_BYTES: u64 = 512 << 20;

/// Time that the service may take beyond the given limits, to unpack the archive and perhaps create
/// an environment.
const SERVICE_MARGIN: Duration = Duration::from_secs(120);

/// The longest wait for a GPU, as in the published client. Whether the service accepts longer ones
/// is not known.
const MAX_GPU_WAIT: Duration = Duration::from_secs(300);

/// The largest report in bytes.
const MAX_REPORT_BYTES: u64 = 2 << 30;

/// Attempts to fetch the report, and the pause before the second.
const MAX_TRIES: u32 = 4;
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(500);

const DOING: &str = "running Wafer's own ncu";
const FETCHING: &str = "fetching the report of Wafer's own ncu";

/// Runs a program on the service; writes the report to `report` if one was made.
pub(super) async fn profile(
    api: &Api,
    job: &ProviderJob,
    report: &Path,
    bills: &PendingBills,
    user_prompt: &dyn UserPrompt,
) -> Result<ProviderResult, RemoteError> {
    let (kind, body) = form(job, archive(job)?)?;
    let limit = job.limit + job.queue.min(MAX_GPU_WAIT) + SERVICE_MARGIN;
    let sent = api.stream("/v1/ncu/run", Some((&kind, body)), DOING, limit).await;
    let mut stream = sent.map_err(|error| match error {
        // The service never had its own ncu, or no longer has it.
        WaferError::Foreign { .. } => WaferError::NoServedNcu { message: error.to_string() },
        WaferError::Http(HttpError::Refused(refusal))
            if matches!(refusal.status, 404 | 405 | 410 | 501) =>
        {
            WaferError::NoServedNcu { message: refusal.body }
        }
        other => other,
    })?;
    let mut result = StreamResult::default();
    let mut bill_reader = BillReader::new(bills);
    let reading = timeout_at(
        Instant::now() + limit,
        read_stream(&mut stream, &mut result, &mut bill_reader, user_prompt),
    );
    match reading.await {
        Ok(Ok(())) => {}
        // The stream broke after the report was announced.
        Ok(Err(_)) | Err(_) if result.report.is_some() => {}
        Ok(Err(error)) => return Err(error.into()),
        Err(_) => return Err(HttpError::Silent { doing: DOING, limit }.into()),
    }
    drop(bill_reader);
    let mut end = result.end;
    if let Some(id) = result.report {
        end.report = fetch(api, &id, report).await?;
    }
    Ok(end)
}

/// The results read from a stream so far.
#[derive(Default)]
struct StreamResult {
    end: ProviderResult,
    /// The name under which the report can be fetched.
    report: Option<String>,
}

async fn read_stream(
    stream: &mut SseStream,
    result: &mut StreamResult,
    bill_reader: &mut BillReader,
    user_prompt: &dyn UserPrompt,
) -> Result<(), WaferError> {
    while let Some(line) = stream.next().await? {
        match line {
            SseLine::Phase(message) => {
                user_prompt.starting(&message);
                if message.starts_with("GPU ") && result.end.notes.len() < 8 {
                    result.end.notes.push(excerpt(&message));
                }
            }
            SseLine::Billing(message) => {
                if let Some(message) = bill_reader.read(&message) {
                    user_prompt.starting(message);
                }
            }
            SseLine::Status(status) => user_prompt.starting(&status.replace('_', " ")),
            SseLine::Report(id) => result.report = Some(id),
            SseLine::Error(message) => {
                return Err(WaferError::from_stream(&message, DOING));
            }
            SseLine::Exit(status) => result.end.exit = status.or(Some(1)),
            SseLine::Done => return Ok(()),
            SseLine::Ssh | SseLine::Notice => {}
            SseLine::Text(text) => {
                let output = &mut result.end.output;
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
    match result.report {
        Some(_) => Ok(()),
        None => Err(WaferError::cut(DOING, "the stream stopped without a report")),
    }
}

/// Fetches a report; returns whether it exists.
async fn fetch(api: &Api, id: &str, to: &Path) -> Result<bool, RemoteError> {
    let path = format!("/v1/ncu/run/{}/report", utf8_percent_encode(id, PATH_SEGMENT));
    let mut attempts = Attempts::new(MAX_TRIES, FIRST_RETRY_PAUSE);
    loop {
        match api.download(&path, to, MAX_REPORT_BYTES, FETCHING).await {
            Err(RemoteError::Wafer(WaferError::Http(HttpError::Refused(refusal))))
                if refusal.status == 404 =>
            {
                return Ok(false);
            }
            Err(error) if error.is_link() && attempts.next().await => {}
            done => return done.map(|()| true),
        }
    }
}

/// The job's folder as a tar archive. File names were checked when the plan was made.
fn archive(job: &ProviderJob) -> Result<Vec<u8>, RemoteError> {
    let local_error = |why: String| WaferError::Local {
        what: "the folder for Wafer's own ncu cannot be packed".to_owned(),
        why,
    };
    let files = &job.files.plan.files;
    let bytes: u64 = files.iter().map(|file| file.size).fold(0, u64::saturating_add);
    if bytes > MAX_UPLOAD_BYTES {
        return Err(local_error(format!(
            "it has {bytes} bytes; at most {MAX_UPLOAD_BYTES} can be sent"
        ))
        .into());
    }
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let pack_error = |e: std::io::Error| RemoteError::Wafer(local_error(e.to_string()));
    for folder in &job.folders {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_size(0);
        header.set_mode(0o755);
        tar.append_data(&mut header, format!("{folder}/"), std::io::empty()).map_err(pack_error)?;
    }
    for file in files {
        let mut content = Vec::with_capacity(usize::try_from(file.size).unwrap_or(0));
        for digest in &file.blobs {
            let piece = job.files.blobs.open(digest);
            let read_error = |e| local_error(format!("`{}`: {e}", file.path));
            content.extend(piece.map_err(read_error)?);
        }
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(if file.executable { 0o755 } else { 0o644 });
        tar.append_data(&mut header, &file.path, &*content).map_err(pack_error)?;
    }
    tar.into_inner().and_then(GzEncoder::finish).map_err(pack_error)
}

/// The content type and body of the request.
fn form(job: &ProviderJob, archive: Vec<u8>) -> Result<(String, Vec<u8>), RemoteError> {
    let boundary = format!("rgpu-{}", nonce());
    let shell_command = |argv: &[String]| {
        shlex::try_join(argv.iter().map(String::as_str)).map_err(|e| WaferError::Local {
            what: "a command cannot be written".to_owned(),
            why: e.to_string(),
        })
    };
    let fields = [
        ("command", shell_command(&job.program)?),
        ("ncu_args", shell_command(&job.arguments)?),
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
