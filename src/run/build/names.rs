//! Files of a job under the names that they have on this machine.

use std::path::Path;

use super::JobResult;
use crate::tool::Expectations;

/// The script of the job, as its command names it.
const SCRIPT: &str = "/harness/build_dsl.py";

/// Turns the host's names into this machine's.
pub(super) struct HostPathNames<'a> {
    expect: &'a Expectations,
    /// The job's folder on the host, where a command tells it.
    work: Option<String>,
}

impl<'a> HostPathNames<'a> {
    pub(super) fn new(expect: &'a Expectations, end: &JobResult) -> Self {
        let words = end.rungs.iter().flat_map(|rung| &rung.argv);
        let work = words.filter_map(|word| word.strip_suffix(SCRIPT)).next().map(str::to_owned);
        Self { expect, work }
    }

    /// The sources on this machine.
    pub(super) fn here(&self) -> impl Iterator<Item = &Path> {
        self.expect.sources.iter().map(|source| source.here.as_path())
    }

    /// A text with this machine's names; other files of the job are named from its folder on.
    pub(super) fn localize(&self, text: &str) -> String {
        let mut text = text.to_owned();
        if let Some(work) = &self.work {
            for source in &self.expect.sources {
                let inner = source.there.trim_start_matches("../");
                let here = source.here.display().to_string();
                text = text.replace(&format!("{work}/{inner}"), &here);
            }
            text = text.replace(&format!("{work}/"), "");
        }
        self.expect.localize(&text)
    }
}

#[cfg(test)]
mod tests {
    use rgpu_protocol::RungRecord;

    use super::*;
    use crate::tool::SourceNames;

    #[test]
    fn files_of_the_job_have_the_names_of_this_machine() {
        let source = SourceNames { there: "../src/k.py".into(), here: "mine/k.py".into() };
        let expect = Expectations { sources: vec![source], ..Expectations::default() };
        let argv = vec!["python".into(), "/host/job/work/harness/build_dsl.py".into()];
        let rung = RungRecord { argv, ..RungRecord::default() };
        let end = JobResult { rungs: vec![rung], ..JobResult::default() };
        let names = HostPathNames::new(&expect, &end);
        let text = "\"/host/job/work/src/k.py\":6 /host/job/work/env/lib/x.py ../src/k.py";
        assert_eq!(names.localize(text), "\"mine/k.py\":6 env/lib/x.py mine/k.py");
    }
}
