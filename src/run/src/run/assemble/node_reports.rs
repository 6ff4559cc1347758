//! Joins the reports of a program that ran on several nodes, one of each.

use super::{ProfileBuilder, RefusedRung};
use crate::run::job::{HostFile, JobResult};
use crate::store::RunFolder;
use rgpu_import::join::join_reports;
use rgpu_import::{IMPORTERS, RejectedReport, Source, TracedActivity};
use rgpu_model::RungId;
use rgpu_model::error::chain;
use rgpu_model::profile::{ArtifactKind, Gap};
use rgpu_plan::tool::{Request, report_of_node};

/// Whether a file is one of the reports that are imported together.
pub(super) fn is_node_report(file: &HostFile) -> bool {
    matches!(file.artifact.kind, ArtifactKind::NsysRep | ArtifactKind::NsysSqlite)
}

impl ProfileBuilder {
    /// Adds the joined reports of all nodes. Returns the rung if it is refused: no report can be
    /// read, or none has work of a GPU.
    pub(super) fn import_nodes(
        &mut self,
        folder: &RunFolder,
        end: &JobResult,
        request: &Request,
    ) -> Option<RefusedRung> {
        let importer = IMPORTERS.iter().find(|i| i.kind == ArtifactKind::NsysRep)?;
        let believed = |file: &&HostFile| {
            file.artifact.kind == ArtifactKind::NsysRep
                && end.rung_of(&file.artifact.step).as_ref() == Some(&file.rung)
        };
        let files: Vec<&HostFile> = end.files.iter().filter(believed).collect();
        let first = *files.first()?;
        let (mut reports, mut refusals, mut gaps) = (Vec::new(), Vec::new(), Vec::new());
        for node in 0..request.nodes {
            let from = format!("{}.nsys-rep", report_of_node(node));
            let left_out = |text: String| {
                let text = format!("node {node}: {text}");
                Gap { code: "report_left_out".to_owned(), text }
            };
            if !files.iter().any(|file| file.artifact.path == from) {
                gaps.push(left_out("nsys left no report".to_owned()));
                continue;
            }
            let path = folder.path().join(&from);
            let traced = match first.rung {
                RungId::NsysNvtx => TracedActivity::HostOnly,
                _ => TracedActivity::Gpu,
            };
            let source = Source { is_rank: true, traced, ..Source::new(&path, &from) };
            match (importer.import)(&source) {
                Ok(mut report) => {
                    refusals.append(&mut report.refusals);
                    reports.push(report);
                }
                Err(error) => gaps.push(left_out(chain(&error))),
            }
        }
        if refusals.len() == reports.len() {
            let unreadable = || RejectedReport {
                code: "unreadable_artifact",
                text: gaps.first().map_or_else(String::new, |gap| gap.text.clone()),
                metrics: Vec::new(),
            };
            let refusal = refusals.into_iter().next().unwrap_or_else(unreadable);
            return Some(self.refuse(first, refusal));
        }
        gaps.extend(
            refusals
                .into_iter()
                .map(|refusal| Gap { code: refusal.code.to_owned(), text: refusal.text }),
        );
        self.profile.gaps.append(&mut gaps);
        self.add(join_reports(reports), None);
        None
    }
}
