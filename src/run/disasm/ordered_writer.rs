//! Files on their way into the output folder. They are written on all cores, as they come, under
//! temporary names; their own names they get in the order of inputs and images, so that the same
//! command gives the same names every time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::names::FileNames;
use crate::store::atomic::{self, UnnamedFile};

/// A file that waits for its name.
#[derive(Debug)]
pub(super) struct PendingFile {
    file: UnnamedFile,
    input: PathBuf,
    arch: String,
    part: Option<String>,
    extension: &'static str,
}

impl PendingFile {
    /// Writes one of `input`, an image for `arch`, perhaps of one `part` of it.
    pub(super) fn write(
        out: &Path,
        (input, arch, part): (&Path, &str, Option<&str>),
        extension: &'static str,
        bytes: &[u8],
    ) -> Result<Self, String> {
        let file = atomic::unnamed(out, bytes);
        let file = file.map_err(|e| format!("not written in `{}`: {e}", out.display()))?;
        let (input, arch) = (input.to_owned(), arch.to_owned());
        Ok(Self { file, input, arch, part: part.map(str::to_owned), extension })
    }

    fn name(self, names: &FileNames, out: &Path) -> Result<String, String> {
        let name = names.fresh(&self.input, &self.arch, self.part.as_deref(), self.extension);
        self.file.name(&out.join(&name)).map_err(|e| format!("`{name}` not written: {e}"))?;
        Ok(name)
    }
}

/// Files of one image, or the end of an input's images.
enum OutputItem {
    Image(Vec<PendingFile>),
    End,
}

/// Number of an input, and of an image in it.
type ImagePosition = (usize, usize);

/// Gives names in order.
#[derive(Default)]
pub(super) struct OrderedWriter(Mutex<WriterState>);

#[derive(Default)]
struct WriterState {
    /// Whose turn it is.
    next: ImagePosition,
    waiting: BTreeMap<ImagePosition, OutputItem>,
    named: BTreeMap<ImagePosition, Result<Vec<String>, String>>,
}

impl OrderedWriter {
    /// Takes the files of an image; every image of every input comes once.
    pub(super) fn image(
        &self,
        names: &FileNames,
        out: &Path,
        place: ImagePosition,
        files: Vec<PendingFile>,
    ) {
        self.put(names, out, place, OutputItem::Image(files));
    }

    /// No image with this or a higher number comes any more from this input.
    pub(super) fn end(&self, names: &FileNames, out: &Path, place: ImagePosition) {
        self.put(names, out, place, OutputItem::End);
    }

    fn put(&self, names: &FileNames, out: &Path, place: ImagePosition, step: OutputItem) {
        let Ok(mut state) = self.0.lock() else { return };
        state.waiting.insert(place, step);
        let mut next = state.next;
        while let Some(step) = state.waiting.remove(&next) {
            match step {
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

    /// The names that the files of each image got.
    pub(super) fn named(self) -> BTreeMap<ImagePosition, Result<Vec<String>, String>> {
        self.0.into_inner().unwrap_or_default().named
    }
}
