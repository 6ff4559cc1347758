//! The catalogue: descriptions of GPUs that are built into rgpu, found by their id or by the name
//! that a driver gives. A new GPU is one file in `data/` and its name in `SHIPPED`.

use std::sync::LazyLock;

use super::Hardware;
use crate::nearest;

/// A GPU of the catalogue. Its file is parsed when it is first used: a prediction needs only one.
struct CatalogueEntry {
    id: &'static str,
    hardware: LazyLock<Option<Hardware>>,
}

macro_rules! shipped_files {
    ($($id:literal)*) => {
        [$(CatalogueEntry {
            id: $id,
            // A file that cannot be parsed would be missing here; a test parses every file.
            hardware: LazyLock::new(|| Hardware::parse(include_str!(concat!("../../data/", $id, ".toml"))).ok()),
        }),*]
    };
}

static SHIPPED: [CatalogueEntry; 8] =
    shipped_files!["a100" "h100" "h200" "b200" "b300" "gb200" "gb300" "mi300x"];

/// All GPUs of the catalogue.
pub fn builtin_gpus() -> impl Iterator<Item = &'static Hardware> {
    SHIPPED.iter().filter_map(|shipped| shipped.hardware.as_ref())
}

/// A name that no GPU of the catalogue has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{typed}` is not a GPU of the catalogue; the nearest is `{nearest}`")]
pub struct UnknownGpu {
    /// The name that was given.
    pub typed: String,
    /// The most similar name.
    pub nearest: String,
}

/// The GPU of the catalogue with this id, in any case.
///
/// # Errors
/// The catalogue has no such GPU; the error names the one with the most similar id.
pub fn find(name: &str) -> Result<&'static Hardware, UnknownGpu> {
    let lower = name.to_lowercase();
    let found = SHIPPED.iter().find(|shipped| shipped.id == lower);
    found.and_then(|shipped| shipped.hardware.as_ref()).ok_or_else(|| UnknownGpu {
        typed: name.to_owned(),
        nearest: nearest(name, SHIPPED.iter().map(|shipped| shipped.id))
            .unwrap_or_default()
            .to_owned(),
    })
}

/// Words in a driver's name of a GPU variant that the catalogue does not have.
const OTHER_VARIANTS: [&str; 4] = ["pcie", "nvl", "40gb", "laptop"];

/// The GPU with the name that a driver gives, such as `NVIDIA H100 80GB HBM3`. `None` for variants
/// with other rates, such as `NVIDIA H100 PCIe`.
#[must_use]
pub fn for_device(name: &str) -> Option<&'static Hardware> {
    let lower = name.to_lowercase();
    let words: Vec<&str> = lower.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let has = |word: &str| words.contains(&word);
    if OTHER_VARIANTS.into_iter().any(has) {
        return None;
    }
    SHIPPED.iter().find(|shipped| has(shipped.id))?.hardware.as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_read_and_resolves() {
        for shipped in &SHIPPED {
            let hardware = shipped.hardware.as_ref().unwrap();
            assert_eq!(hardware.id, shipped.id);
            hardware.gpu().unwrap();
        }
        assert_eq!(builtin_gpus().count(), SHIPPED.len());
    }

    #[test]
    fn a_drivers_name_finds_only_its_own_variant() {
        let id = |name| for_device(name).map(|hardware| hardware.id.as_str());
        assert_eq!(id("NVIDIA H200"), Some("h200"));
        assert_eq!(id("NVIDIA H100 80GB HBM3"), Some("h100"));
        assert_eq!(id("NVIDIA A100-SXM4-80GB"), Some("a100"));
        assert_eq!(id("NVIDIA GB200"), Some("gb200"));
        for other in ["NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA A100-SXM4-40GB", "NVIDIA L4"] {
            assert_eq!(id(other), None, "{other}");
        }
    }

    #[test]
    fn the_nearest_name_is_suggested() {
        assert_eq!(find("H200").unwrap().id, "h200");
        assert_eq!(find("h20").unwrap_err().nearest, "h200");
    }
}
