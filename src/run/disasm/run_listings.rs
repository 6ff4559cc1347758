//! What a run compiled, as SASS: `sass/` of its folder, and the operands of its hot spots.
//!
//! nvdisasm on the run's host comes first, since it is as new as the compiler there: one more job on
//! the same connection, for everything at once. Else one on this machine serves, else rgpu lists
//! without operands. Nothing here fails a run: what goes wrong costs listings, and is said.

use std::path::PathBuf;

use rgpu_protocol::HostFacts;

use super::image_task::ImageTask;
use super::nvdisasm::{Nvdisasm, find};
use super::operands;
use super::remote::{ListingHost, ListingRequest, questions};
use crate::model::HotSpots;
use crate::model::disasm::Disasm;
use crate::model::profile::Artifact;
use crate::remote::HostLink;
use crate::run::event::{Reporter, RunEvent};
use crate::run::job::RunContext;
use crate::run::provenance::digest_file;
use crate::store::RunFolder;

/// Where listings go in a run's folder, with `summary.json`.
const FOLDER: &str = "sass";

/// The kind and the step of a listing among a run's artifacts.
const KIND: &str = "sass";

/// What was compiled in a run, or on one side of a comparison.
pub struct CompiledFiles<'a> {
    /// Where it lies, and where the listings go.
    pub folder: &'a RunFolder,
    /// Cubins in it: the artifacts of kind `cubin`.
    pub cubins: Vec<String>,
    /// Hot spots of its reports, which get their operands.
    pub hotspots: Option<&'a mut HotSpots>,
}

impl<'a> CompiledFiles<'a> {
    /// The cubins among these artifacts.
    pub fn new(
        folder: &'a RunFolder,
        artifacts: &[Artifact],
        hotspots: Option<&'a mut HotSpots>,
    ) -> Self {
        let cubins = artifacts.iter().filter(|a| a.kind == "cubin").map(|a| a.path.clone());
        Self { folder, cubins: cubins.collect(), hotspots }
    }

    fn files(&self) -> Vec<PathBuf> {
        self.cubins.iter().map(|cubin| self.folder.path().join(cubin)).collect()
    }

    /// The reports that hot spots come from.
    fn reports(&self) -> Vec<String> {
        let launches = self.hotspots.iter().flat_map(|h| &h.launches);
        let mut reports: Vec<String> = launches.map(|launch| launch.from.clone()).collect();
        reports.sort();
        reports.dedup();
        reports.retain(|from| self.folder.path().join(from).is_file());
        reports
    }

    fn questions(&self) -> Vec<ListingRequest> {
        let mut all = questions(&self.files(), &ImageTask::default());
        if let Some(hotspots) = &self.hotspots {
            for from in self.reports() {
                let path = self.folder.path().join(&from);
                all.extend(operands::questions(hotspots, &from, &path));
            }
        }
        all
    }

    /// Lists the cubins and puts operands into the hot spots; what was written.
    fn list(&mut self, tool: Option<&Nvdisasm>, reporter: &mut dyn Reporter) -> Vec<Artifact> {
        let mut written = Vec::new();
        if !self.cubins.is_empty() {
            match listings(self.folder, &self.cubins, tool) {
                Ok((_, artifacts)) => written = artifacts,
                Err(error) => note(reporter, &format!("no listings in `sass/`: {error}")),
            }
        }
        let (reports, Some(tool)) = (self.reports(), tool) else { return written };
        let Some(hotspots) = &mut self.hotspots else { return written };
        for from in reports {
            let path = self.folder.path().join(&from);
            if let Err(error) = operands::operands(hotspots, &from, &path, tool) {
                note(reporter, &format!("`{from}`: instructions have no operands: {error}"));
            }
        }
        written
    }
}

/// Writes the listing of each cubin, named by its path in `folder`, and their summary into `sass/`
/// of that folder: by nvdisasm where there is one that can read it, else without operands. Returns
/// the summary and the artifacts.
///
/// # Errors
/// Our disk. A cubin that cannot be read is told in the summary.
pub fn listings(
    folder: &RunFolder,
    cubins: &[String],
    tool: Option<&Nvdisasm>,
) -> std::io::Result<(Disasm, Vec<Artifact>)> {
    let out = folder.path().join(FOLDER);
    std::fs::create_dir_all(&out)?;
    let files: Vec<PathBuf> = cubins.iter().map(|cubin| folder.path().join(cubin)).collect();
    let what =
        ImageTask { out: Some(out), sass: true, nvdisasm: tool.cloned(), ..ImageTask::default() };
    let mut document = super::all(&files, &what, &|_| {});
    for (input, cubin) in document.inputs.iter_mut().zip(cubins) {
        input.path.clone_from(cubin);
    }
    folder
        .write_json(&format!("{FOLDER}/summary.json"), &document)
        .map_err(std::io::Error::other)?;
    let images = document.inputs.iter().flat_map(|input| &input.images);
    let mut artifacts = Vec::new();
    for file in images.flat_map(|image| &image.files) {
        let path = format!("{FOLDER}/{file}");
        let digest = digest_file(&folder.path().join(&path))?;
        artifacts.push(Artifact {
            path,
            kind: KIND.to_owned(),
            step: KIND.to_owned(),
            size: digest.size,
            sha256: digest.sha256.into(),
        });
    }
    Ok((document, artifacts))
}

/// Fills `sass/` for everything that was built, and the operands of its hot spots. `here` are the
/// places where this machine may have nvdisasm. Returns what was written for each, as artifacts of
/// its run.
pub async fn fill(
    link: &mut HostLink,
    context: &mut RunContext<'_>,
    facts: &HostFacts,
    here: &[PathBuf],
    built: &mut [CompiledFiles<'_>],
) -> Vec<Vec<Artifact>> {
    if built.iter().all(|b| b.cubins.is_empty() && b.hotspots.is_none()) {
        return built.iter().map(|_| Vec::new()).collect();
    }
    let tool = match on_host(link, context, facts, built).await {
        Some(tool) => Some(tool),
        None => find(here),
    };
    built.iter_mut().map(|b| b.list(tool.as_ref(), context.reporter)).collect()
}

/// The host's nvdisasm, asked.
async fn on_host(
    link: &mut HostLink,
    context: &mut RunContext<'_>,
    facts: &HostFacts,
    built: &[CompiledFiles<'_>],
) -> Option<Nvdisasm> {
    let known = facts.tool("nvdisasm").filter(|t| t.problems.is_empty())?;
    if crate::run::is_local(link)
        && let Some(tool) = find(&[PathBuf::from(&known.path)])
    {
        return Some(tool);
    }
    let questions: Vec<ListingRequest> = built.iter().flat_map(CompiledFiles::questions).collect();
    if questions.is_empty() {
        return None;
    }
    let run = format!("{}.sass", context.record.id);
    let before = context.record.jobs.iter().filter(|job| job.job.starts_with(&run)).count();
    let job = format!("{run}.{}", before + 1);
    let asked = ListingHost { link, facts, job: job.clone() }.all(&questions, context).await;
    link.drop_job(&job);
    match asked {
        Ok(tool) => tool,
        Err(failure) => {
            note(
                context.reporter,
                &format!("nvdisasm on the host did not serve: {}", failure.what),
            );
            None
        }
    }
}

fn note(reporter: &mut dyn Reporter, text: &str) {
    reporter.say(&RunEvent::Note { text });
}
