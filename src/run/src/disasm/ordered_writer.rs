//! Writes files to the output folder on all cores, under temporary names, and gives them their
//! final names in the order of inputs and images. So the same command gives the same names every
//! time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::names::FileNames;
use crate::store::atomic::{self, TemporaryFile};

/// A written file without its final name.
#[derive(Debug)]
pub(super) struct PendingFile {
    file: TemporaryFile,
    input: PathBuf,
    arch: String,
    part: Option<String>,
    extension: &'static str,
}

impl PendingFile {
    /// Writes a file of `input`'s image for `arch`, or of one `part` of the image.
    pub(super) fn write(
        out: &Path,
        (input, arch, part): (&Path, &str, Option<&str>),
        extension: &'static str,
        bytes: &[u8],
    ) -> Result<Self, String> {
        let file = atomic::write_temporary(out, bytes);
        let file = file.map_err(|e| format!("not written in `{}`: {e}", out.display()))?;
        let (input, arch) = (input.to_owned(), arch.to_owned());
        Ok(Self { file, input, arch, part: part.map(str::to_owned), extension })
    }

    fn name(self, names: &FileNames, out: &Path) -> Result<String, String> {
        let name = names.fresh(&self.input, &self.arch, self.part.as_deref(), self.extension);
        self.file.rename_to(&out.join(&name)).map_err(|e| format!("`{name}` not written: {e}"))?;
        Ok(name)
    }
}

/// The files of one image, or the end of an input's images.
enum OutputItem {
    Image(Vec<PendingFile>),
    End,
}

/// Number of an input, and of an image in it.
type ImagePosition = (usize, usize);

/// Names files in order.
#[derive(Default)]
pub(super) struct OrderedWriter(Mutex<WriterState>);

#[derive(Default)]
struct WriterState {
    /// The next position to name.
    next: ImagePosition,
    waiting: BTreeMap<ImagePosition, OutputItem>,
    named: BTreeMap<ImagePosition, Result<Vec<String>, String>>,
}

impl OrderedWriter {
    /// Adds the files of an image; call it once for each image of each input.
    pub(super) fn image(
        &self,
        names: &FileNames,
        out: &Path,
        position: ImagePosition,
        files: Vec<PendingFile>,
    ) {
        self.add_item(names, out, position, OutputItem::Image(files));
    }

    /// Ends an input's images: none with this or a higher number follows.
    pub(super) fn end(&self, names: &FileNames, out: &Path, position: ImagePosition) {
        self.add_item(names, out, position, OutputItem::End);
    }

    fn add_item(&self, names: &FileNames, out: &Path, position: ImagePosition, item: OutputItem) {
        let Ok(mut state) = self.0.lock() else { return };
        state.waiting.insert(position, item);
        let mut next = state.next;
        while let Some(item) = state.waiting.remove(&next) {
            match item {
                OutputItem::End => next = (next.0 + 1, 0),
                OutputItem::Image(files) => {
                    let named = files.into_iter().map(|file| file.name(names, out)).collect();
                    state.named.insert(next, named);
                    next.1 += 1;
                }
            }
        }
        state.next = next;
    }

    /// The final file names of each image.
    pub(super) fn named(self) -> BTreeMap<ImagePosition, Result<Vec<String>, String>> {
        self.0.into_inner().unwrap_or_default().named
    }
}
