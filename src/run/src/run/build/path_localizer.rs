//! Replaces the host's paths in compiler output with paths on this machine, for `rgpu build`.
//!
//! The plan's [`DraftInfo`] gives the names of the sources, as compilers print them. A build of a
//! Python DSL also prints absolute paths; the job's folder in them comes from the commands that
//! ran.

use std::path::Path;

use super::JobResult;
use rgpu_plan::tool::DraftInfo;

/// The script that compiles a Python DSL, below the job's folder. Its path in a command shows where
/// that folder is.
const DSL_SCRIPT: &str = "/harness/build_dsl.py";

/// Replaces the host's paths in texts of one job.
pub(super) struct PathLocalizer<'a> {
    info: &'a DraftInfo,
    /// The job's folder on the host, if a command shows it.
    job_folder: Option<String>,
}

impl<'a> PathLocalizer<'a> {
    pub(super) fn new(info: &'a DraftInfo, result: &JobResult) -> Self {
        let words = result.rungs.iter().flat_map(|rung| &rung.argv);
        let job_folder =
            words.filter_map(|word| word.strip_suffix(DSL_SCRIPT)).next().map(str::to_owned);
        Self { info, job_folder }
    }

    /// Paths of the sources on this machine.
    pub(super) fn local_paths(&self) -> impl Iterator<Item = &Path> {
        self.info.sources.iter().map(|source| source.local_path.as_path())
    }

    /// Replaces the sources' paths with this machine's. Other paths below the job's folder, if it
    /// is known, become relative to it.
    pub(super) fn localize(&self, text: &str) -> String {
        let mut text = text.to_owned();
        if let Some(job_folder) = &self.job_folder {
            for source in &self.info.sources {
                // `host_name` is relative to the compiler's working folder, which is one level
                // below the job's folder.
                let inner = source.host_name.trim_start_matches("../");
                let local = source.local_path.display().to_string();
                text = text.replace(&format!("{job_folder}/{inner}"), &local);
            }
            text = text.replace(&format!("{job_folder}/"), "");
        }
        self.info.localize(&text)
    }
}

#[cfg(test)]
mod tests {
    use rgpu_protocol::RungRecord;

    use super::*;
    use rgpu_plan::tool::SourceNames;

    #[test]
    fn files_of_the_job_have_the_names_of_this_machine() {
        let source =
            SourceNames { host_name: "../src/k.py".into(), local_path: "mine/k.py".into() };
        let info = DraftInfo { sources: vec![source], ..DraftInfo::default() };
        let argv = vec!["python".into(), "/host/job/work/harness/build_dsl.py".into()];
        let rung = RungRecord { argv, ..RungRecord::default() };
        let end = JobResult { rungs: vec![rung], ..JobResult::default() };
        let names = PathLocalizer::new(&info, &end);
        let text = "\"/host/job/work/src/k.py\":6 /host/job/work/env/lib/x.py ../src/k.py";
        assert_eq!(names.localize(text), "\"mine/k.py\":6 env/lib/x.py mine/k.py");
    }
}
