//! Disassembles the cubins of a run into its folder's `sass/`, and adds operands to its hot spots.
//!
//! The nvdisasm of the run's host is preferred, since it is as new as the compiler there; it takes
//! one more job on the same connection. Else one on this machine is used, else rgpu lists without
//! operands. Errors never fail a run: they are reported, and listings are missing.

use std::path::PathBuf;

use rgpu_protocol::HostFacts;

use super::event::{Reporter, RunEvent};
use super::host_listings::ListingHost;
use super::job::RunContext;
use crate::disasm::{
    self, ImageTask, ListingRequest, Nvdisasm, NvdisasmSearch, cubin_listing_requests,
    hot_spot_listing_requests, operands,
};
use crate::store::{RunFolder, digest_file};
use rgpu_model::HotSpots;
use rgpu_model::disasm::DisasmDocument;
use rgpu_model::error::Failure;
use rgpu_model::profile::Artifact;
use rgpu_model::profile::ArtifactKind;
use rgpu_remote::HostLink;

/// The folder of listings and `summary.json` in a run's folder.
const LISTINGS_FOLDER: &str = "sass";

/// The step of listings among a run's artifacts.
const SASS_ARTIFACT_STEP: &str = "sass";

/// The compiled files of a run, or of one side of a comparison.
pub(super) struct CompiledFiles<'a> {
    /// The folder that holds them, and that gets the listings.
    pub folder: &'a RunFolder,
    /// Paths of the cubins: the artifacts of kind `cubin`.
    pub cubins: Vec<String>,
    /// Hot spots that get operands.
    pub hotspots: Option<&'a mut HotSpots>,
}

impl<'a> CompiledFiles<'a> {
    /// Takes the cubins among these artifacts.
    pub(super) fn new(
        folder: &'a RunFolder,
        artifacts: &[Artifact],
        hotspots: Option<&'a mut HotSpots>,
    ) -> Self {
        let cubins =
            artifacts.iter().filter(|a| a.kind == ArtifactKind::Cubin).map(|a| a.path.clone());
        Self { folder, cubins: cubins.collect(), hotspots }
    }

    fn files(&self) -> Vec<PathBuf> {
        self.cubins.iter().map(|cubin| self.folder.path().join(cubin)).collect()
    }

    /// The existing reports that hot spots come from.
    fn reports(&self) -> Vec<String> {
        let launches = self.hotspots.iter().flat_map(|h| &h.launches);
        let mut reports: Vec<String> = launches.map(|launch| launch.from.clone()).collect();
        reports.sort();
        reports.dedup();
        reports.retain(|from| self.folder.has(from));
        reports
    }

    fn listing_requests(&self) -> Vec<ListingRequest> {
        let mut all = cubin_listing_requests(&self.files(), &ImageTask::default());
        if let Some(hotspots) = &self.hotspots {
            for from in self.reports() {
                let path = self.folder.path().join(&from);
                all.extend(hot_spot_listing_requests(hotspots, &from, &path));
            }
        }
        all
    }

    /// Writes the listings and adds operands to the hot spots; returns the new artifacts.
    fn write_listings(
        &mut self,
        tool: Option<&Nvdisasm>,
        reporter: &mut dyn Reporter,
    ) -> Vec<Artifact> {
        let mut written = Vec::new();
        if !self.cubins.is_empty() {
            match write_listings(self.folder, &self.cubins, tool) {
                Ok((_, artifacts)) => written = artifacts,
                Err(error) => note(reporter, &format!("no listings in `sass/`: {error}")),
            }
        }
        let (reports, Some(tool)) = (self.reports(), tool) else { return written };
        let Some(hotspots) = &mut self.hotspots else { return written };
        for from in reports {
            let path = self.folder.path().join(&from);
            if let Err(error) = operands(hotspots, &from, &path, tool) {
                note(reporter, &format!("`{from}`: instructions have no operands: {error}"));
            }
        }
        written
    }
}

/// Writes a listing of each cubin, given by its path in `folder`, and their summary into `sass/` of
/// that folder. Without a `tool` that reads a cubin, its listing has no operands. Returns the
/// summary and the artifacts.
///
/// # Errors
/// The folder cannot be written. An unreadable cubin is reported in the summary.
fn write_listings(
    folder: &RunFolder,
    cubins: &[String],
    tool: Option<&Nvdisasm>,
) -> std::io::Result<(DisasmDocument, Vec<Artifact>)> {
    let out = folder.path().join(LISTINGS_FOLDER);
    folder.files().make_folder(LISTINGS_FOLDER)?;
    let files: Vec<PathBuf> = cubins.iter().map(|cubin| folder.path().join(cubin)).collect();
    let task = ImageTask {
        out: Some(out),
        write_listings: true,
        nvdisasm: tool.cloned(),
        ..ImageTask::default()
    };
    let mut document = disasm::all(&files, &task, &|_| {});
    for (input, cubin) in document.inputs.iter_mut().zip(cubins) {
        input.path.clone_from(cubin);
    }
    folder
        .write_json(&format!("{LISTINGS_FOLDER}/summary.json"), &document)
        .map_err(std::io::Error::other)?;
    let images = document.inputs.iter().flat_map(|input| &input.images);
    let mut artifacts = Vec::new();
    for file in images.flat_map(|image| &image.files) {
        let path = format!("{LISTINGS_FOLDER}/{file}");
        let digest = digest_file(&folder.path().join(&path))?;
        artifacts.push(Artifact {
            path,
            kind: ArtifactKind::Sass,
            step: SASS_ARTIFACT_STEP.to_owned(),
            size: digest.size,
            sha256: digest.sha256.into(),
        });
    }
    Ok((document, artifacts))
}

/// Writes the listings of everything that was built, and adds operands to its hot spots.
/// `candidates` are paths where this machine may have nvdisasm. Returns the new artifacts for each
/// of `built`.
pub(super) async fn write_all_listings(
    link: &mut HostLink,
    context: &mut RunContext<'_>,
    facts: &HostFacts,
    search: &NvdisasmSearch,
    built: &mut [CompiledFiles<'_>],
) -> Vec<Vec<Artifact>> {
    if built.iter().all(|b| b.cubins.is_empty() && b.hotspots.is_none()) {
        return built.iter().map(|_| Vec::new()).collect();
    }
    let tool = match ask_host(link, context, facts, search, built).await {
        Some(tool) => Some(tool),
        None => search.find(),
    };
    let total = built.iter().map(|b| b.cubins.len()).sum();
    if tool.as_ref().is_some_and(|tool| tool.path().is_some()) {
        context.reporter.report(&RunEvent::Disassembling { done: 0, total });
    }
    built.iter_mut().map(|b| b.write_listings(tool.as_ref(), context.reporter)).collect()
}

/// The nvdisasm of the host with all needed listings; `None` if it has none or fails.
async fn ask_host(
    link: &mut HostLink,
    context: &mut RunContext<'_>,
    facts: &HostFacts,
    search: &NvdisasmSearch,
    built: &[CompiledFiles<'_>],
) -> Option<Nvdisasm> {
    let known = facts.tool("nvdisasm").filter(|t| t.problems.is_empty())?;
    if super::is_local(link)
        && let Some(tool) = search.find_in(&[PathBuf::from(&known.path)])
    {
        return Some(tool);
    }
    let requests: Vec<ListingRequest> =
        built.iter().flat_map(CompiledFiles::listing_requests).collect();
    if requests.is_empty() {
        return None;
    }
    let run = format!("{}.sass", context.record.id);
    let before = context.record.jobs.iter().filter(|job| job.job.starts_with(&run)).count();
    let job = format!("{run}.{}", before + 1);
    let result =
        ListingHost { link, facts, job: job.clone() }.fetch_listings(&requests, context).await;
    link.request_job_removal(&job);
    match result {
        Ok(tool) => tool,
        Err(error) => {
            let failure = Failure::from(error);
            note(context.reporter, &format!("nvdisasm on the host failed: {}", failure.what));
            None
        }
    }
}

fn note(reporter: &mut dyn Reporter, text: &str) {
    reporter.report(&RunEvent::Note { text });
}
