//! Copies compiled modules to where users look for them, beside the runs.

use std::path::Path;

use crate::store::RunFolder;
use rgpu_model::Profile;
use rgpu_model::beneath::Folder;
use rgpu_model::profile::ArtifactKind;
use rgpu_model::regular_file::MAX_FILE_BYTES;

/// Copies the compiled modules to `<kernel>.<arch>.cubin` beside the runs, so that `rgpu disasm
/// artifacts/*.cubin` finds them.
pub fn publish_cubins(profile: &Profile, run: &RunFolder, runs_root: &Path) -> std::io::Result<()> {
    let Some(artifacts) = runs_root.parent() else { return Ok(()) };
    for cubin in profile.artifacts.iter().filter(|a| a.kind == ArtifactKind::Cubin) {
        let arch = profile.kernel.arch.first().map_or("sm", String::as_str);
        let bytes = run.files().read(&cubin.path, MAX_FILE_BYTES)?;
        let name = format!("{}.{arch}.cubin", profile.kernel.name);
        Folder::create(artifacts)?.write(name, &bytes)?;
    }
    Ok(())
}
