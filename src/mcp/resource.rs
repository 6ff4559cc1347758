//! Resources: the text files of run folders, `rgpu://runs/ID/FILE?page=N`, in pages, and what the
//! fields of a tool's result mean, `rgpu://tools/NAME/result`.

use std::path::{Component, Path};

use rmcp::ErrorData;
use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};

use super::{McpContext, SKILL, tool};
use rgpu_run::store::{RunFolder, Runs};

/// The scheme and the part that all have.
const PREFIX: &str = "rgpu://runs/";

/// The characters of a page.
const PAGE_CHARS: usize = 6000;

/// The largest file that is read.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// How many runs are listed.
const MAX_LISTED: usize = 20;

/// The skill, which agents read to learn how to work with rgpu.
const SKILL_URI: &str = "rgpu://skill/SKILL.md";

/// The schema of a tool's result stands between these.
const TOOL_PREFIX: &str = "rgpu://tools/";
const TOOL_SUFFIX: &str = "/result";

/// The address of the log of a step's output stream.
pub(super) fn log_address(run: &str, step: &str, stream: &str) -> String {
    format!("{PREFIX}{run}/log/{step}.{stream}")
}

/// The skill and the results of the newest runs.
pub(super) fn list(context: &McpContext) -> Vec<Resource> {
    let records = match context.check_folders() {
        Ok(()) => Runs::new(&context.runs).records().unwrap_or_default(),
        Err(_) => Vec::new(),
    };
    let has_profile =
        |id: &str| context.runs.join(id).join("profile.json").symlink_metadata().is_ok();
    let newest = records.into_iter().filter(|record| has_profile(&record.id)).take(MAX_LISTED);
    let skill = Resource::new(SKILL_URI, "skill")
        .with_title("How to work with rgpu")
        .with_description("Measure, find the cause, change, verify, compare")
        .with_mime_type("text/markdown");
    let results = newest.map(|record| {
        Resource::new(format!("{PREFIX}{}/profile.json", record.id), record.id.clone())
            .with_title(record.title)
            .with_description(format!("The result of the run on {}", record.remote))
            .with_mime_type("application/json")
    });
    [skill].into_iter().chain(results).collect()
}

/// The form of all addresses.
pub(super) fn templates() -> Vec<ResourceTemplate> {
    let template = ResourceTemplate::new(format!("{PREFIX}{{id}}/{{+file}}{{?page}}"), "run-file");
    let file = template.with_title("A file of a run").with_description(
        "A text file of a run's folder: profile.json, report.md, commands.sh, events.jsonl, \
         log/…, ptx/…; pages of 6,000 characters, from 1",
    );
    let uri = format!("{TOOL_PREFIX}{{name}}{TOOL_SUFFIX}");
    let result = ResourceTemplate::new(uri, "tool-result");
    let about = "The JSON Schema of a tool's result, with what each field means";
    vec![file, result.with_title("The result of a tool").with_description(about)]
}

/// Reads a page of a file.
pub(super) fn read(context: &McpContext, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let missing = |why: String| ErrorData::resource_not_found(format!("`{uri}`: {why}"), None);
    let form = || missing(format!("resources are {PREFIX}ID/FILE?page=N"));
    if uri == SKILL_URI {
        let skill = ResourceContents::text(SKILL, uri).with_mime_type("text/markdown");
        return Ok(ReadResourceResult::new(vec![skill]));
    }
    let tool = uri.strip_prefix(TOOL_PREFIX).and_then(|inner| inner.strip_suffix(TOOL_SUFFIX));
    if let Some(name) = tool {
        let tool = tool::find(name).ok_or_else(|| missing("there is no such tool".to_owned()))?;
        let schema = serde_json::to_string(&tool.result_schema()).unwrap_or_default();
        let schema = ResourceContents::text(schema, uri).with_mime_type("application/schema+json");
        return Ok(ReadResourceResult::new(vec![schema]));
    }
    let inner = uri.strip_prefix(PREFIX).ok_or_else(form)?;
    let (inner, page) = match inner.split_once("?page=") {
        Some((inner, page)) => (inner, page.parse().map_err(|_| form())?),
        None => (inner, 1_usize),
    };
    let (id, file) = inner.split_once('/').ok_or_else(form)?;
    let file = percent_encoding::percent_decode_str(file).decode_utf8().map_err(|_| form())?;
    let path = Path::new(&*file);
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    context.check_folders().map_err(|failure| missing(failure.what))?;
    let runs = Runs::new(&context.runs);
    let Some(folder) = runs.find_id(id).filter(|_| is_plain && !file.is_empty()) else {
        return Err(missing("there is no such file of a run".to_owned()));
    };
    let folder = folder.map_err(|e| missing(e.to_string()))?;
    let text = text_of(&folder, path).map_err(missing)?;
    let pages = text.chars().count().div_ceil(PAGE_CHARS).max(1);
    if page == 0 || page > pages {
        return Err(missing(format!("it has {pages} pages")));
    }
    let start = (page - 1) * PAGE_CHARS;
    let mut part: String = text.chars().skip(start).take(PAGE_CHARS).collect();
    if page < pages {
        let next = page + 1;
        part.push_str(&format!("\n[page {page} of {pages}; next: {PREFIX}{inner}?page={next}]"));
    }
    let mime = match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") if pages == 1 => "application/json",
        Some("md") => "text/markdown",
        _ => "text/plain",
    };
    Ok(ReadResourceResult::new(vec![ResourceContents::text(part, uri).with_mime_type(mime)]))
}

/// The text of a file of a run.
fn text_of(folder: &RunFolder, inner: &Path) -> Result<String, String> {
    let bytes = folder.files().read(inner, MAX_FILE_BYTES).map_err(|e| e.to_string())?;
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err("it is not text; open it with the tool that made it".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_run::store::{RunFolder, RunRecord};

    #[test]
    fn only_text_files_of_run_folders_are_read_and_in_pages() {
        let dir = tempfile::tempdir().unwrap();
        let context = McpContext {
            program: "rgpu".into(),
            project: dir.path().to_owned(),
            project_folder: rgpu_model::beneath::Folder::open(dir.path()).unwrap(),
            runs: dir.path().join("runs"),
            scratch: dir.path().join("scratch"),
            started: rgpu_run::store::StartedRuns::in_cache(dir.path()),
        };
        let id = "20261120-101502-vecadd-ncu-3f2a1c";
        let folder = RunFolder::create(&context.runs, id, None).unwrap();
        let now = jiff::Timestamp::now();
        folder.save(&RunRecord::new(id.to_owned(), "profile", now)).unwrap();
        folder.write("profile.json", b"{}").unwrap();
        folder.write("log/long.stdout", "é".repeat(7000).as_bytes()).unwrap();
        folder.write("raw/report", b"\0\xff").unwrap();
        std::fs::write(dir.path().join("secret"), "secret").unwrap();

        assert_eq!(list(&context)[1].uri, format!("{PREFIX}{id}/profile.json"));
        let text = |inner: &str| {
            let read = read(&context, &format!("{PREFIX}{id}/{inner}"))?;
            Ok::<_, ErrorData>(serde_json::to_value(&read.contents[0]).unwrap()["text"].clone())
        };
        assert_eq!(text("profile.json").unwrap(), "{}");
        let first = text("log/long.stdout").unwrap();
        assert!(first.as_str().unwrap().ends_with("?page=2]"), "{first}");
        assert_eq!(text("log/long.stdout?page=2").unwrap(), "é".repeat(1000));
        for wrong in [
            "log/long.stdout?page=3",
            "log/long.stdout?page=0",
            "log/long.stdout?page=x",
            "raw/report",
            "../../secret",
            "%2e%2e/%2e%2e/secret",
            "/etc/passwd",
            "",
            "log",
            "none",
        ] {
            assert!(text(wrong).is_err(), "{wrong}");
        }
        for wrong in ["rgpu://runs/none/profile.json", "file:///etc/passwd", "rgpu://runs/latest"] {
            assert!(read(&context, wrong).is_err(), "{wrong}");
        }
        std::os::unix::fs::symlink(dir.path(), folder.path().join("out")).unwrap();
        for wrong in ["out/secret", "profile.json"] {
            let error = text(wrong).unwrap_err();
            assert!(error.message.contains("is a symbolic link"), "{wrong}: {error:?}");
        }
    }
}
