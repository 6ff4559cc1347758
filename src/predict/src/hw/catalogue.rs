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

static SHIPPED: [CatalogueEntry; 15] = shipped_files!["a10" "a100" "l4" "l40s" "rtx4090" "rtx5090"
    "h100" "h200" "gh200" "b200" "b300" "gb200" "gb300" "gb10" "mi300x"];

/// Other names of GPUs, without spaces and hyphens.
const ALIASES: [(&str, &str); 4] =
    [("4090", "rtx4090"), ("5090", "rtx5090"), ("spark", "gb10"), ("dgxspark", "gb10")];

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

/// The GPU of the catalogue with this id or another name of it: `RTX 4090`, `spark`. Case, spaces
/// and hyphens do not matter.
///
/// # Errors
/// The catalogue has no such GPU; the error names the one with the most similar id.
pub fn find(name: &str) -> Result<&'static Hardware, UnknownGpu> {
    let lower = name.to_lowercase().replace("nvidia", "").replace("geforce", "");
    let bare: String = lower.chars().filter(char::is_ascii_alphanumeric).collect();
    let id = ALIASES.iter().find(|(alias, _)| *alias == bare).map_or(&*bare, |(_, id)| id);
    let found = SHIPPED.iter().find(|shipped| shipped.id == id);
    found.and_then(|shipped| shipped.hardware.as_ref()).ok_or_else(|| UnknownGpu {
        typed: name.to_owned(),
        nearest: nearest(name, SHIPPED.iter().map(|shipped| shipped.id))
            .unwrap_or_default()
            .to_owned(),
    })
}

/// Words in a driver's name of a GPU variant that the catalogue does not have.
const OTHER_VARIANTS: [&str; 6] = ["pcie", "nvl", "40gb", "144g", "laptop", "d"];

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
    // A GeForce's id is two words of its name: `RTX 4090`.
    let is_pair = |id: &str| words.windows(2).any(|pair| pair.concat() == id);
    SHIPPED.iter().find(|shipped| has(shipped.id) || is_pair(shipped.id))?.hardware.as_ref()
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
        assert_eq!(id("NVIDIA L4"), Some("l4"));
        assert_eq!(id("NVIDIA GeForce RTX 4090"), Some("rtx4090"));
        assert_eq!(id("NVIDIA GH200 480GB"), Some("gh200"));
        assert_eq!(id("NVIDIA GB10"), Some("gb10"));
        for other in [
            "NVIDIA H100 PCIe",
            "NVIDIA H100 NVL",
            "NVIDIA A100-SXM4-40GB",
            "NVIDIA A10G",
            "NVIDIA GeForce RTX 4090 Laptop GPU",
            "NVIDIA GeForce RTX 4090 D",
        ] {
            assert_eq!(id(other), None, "{other}");
        }
    }

    #[test]
    fn the_nearest_name_is_suggested() {
        for (name, id) in [
            ("H200", "h200"),
            ("RTX 4090", "rtx4090"),
            ("rtx-5090", "rtx5090"),
            ("4090", "rtx4090"),
            ("NVIDIA L40S", "l40s"),
            ("DGX Spark", "gb10"),
        ] {
            assert_eq!(find(name).unwrap().id, id);
        }
        assert_eq!(find("h20").unwrap_err().nearest, "h200");
    }
}
