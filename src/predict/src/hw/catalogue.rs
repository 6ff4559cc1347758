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

static SHIPPED: [CatalogueEntry; 15] = shipped_files![
    "a10" "a100" "l4" "l40s" "rtx4090" "h100" "gh200" "h200" "b200" "b300" "gb200" "gb300"
    "rtx5090" "gb10" "mi300x"
];

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

/// The GPU of the catalogue with this name: its id, the name that a driver gives, or words of the
/// product's name that only one GPU has, such as `4090` or `DGX Spark`.
///
/// # Errors
/// The catalogue has no such GPU; the error names the one with the most similar id.
pub fn find(name: &str) -> Result<&'static Hardware, UnknownGpu> {
    let (typed, lower) = (words(name), name.to_lowercase());
    let is_id = |shipped: &&CatalogueEntry| shipped.id == lower || shipped.id == typed.concat();
    // A user's own `h200-lab` is another GPU than the `h200` in its name.
    let from_driver = || for_device(name).filter(|_| typed.first().is_some_and(|w| w == "nvidia"));
    let of_id = SHIPPED.iter().find(is_id).and_then(|shipped| shipped.hardware.as_ref());
    let found = of_id.or_else(from_driver).or_else(|| by_product_words(&typed));
    found.ok_or_else(|| UnknownGpu {
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
    let words = words(name);
    if words.iter().any(|word| OTHER_VARIANTS.contains(&word.as_str())) {
        return None;
    }
    // `RTX 4090` is the id `rtx4090`.
    let is_named = |id: &str| {
        words.iter().any(|word| word == id) || words.windows(2).any(|pair| pair.concat() == id)
    };
    SHIPPED.iter().find(|shipped| is_named(shipped.id))?.hardware.as_ref()
}

/// The only GPU whose product's name has all words of `typed`.
fn by_product_words(typed: &[String]) -> Option<&'static Hardware> {
    let has_all = |hardware: &&Hardware| {
        let product = words(&hardware.name);
        !typed.is_empty() && typed.iter().all(|word| product.contains(word))
    };
    let mut found = builtin_gpus().filter(has_all);
    found.next().filter(|_| found.next().is_none())
}

/// The words of a name, in lower case.
fn words(name: &str) -> Vec<String> {
    let parts = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty());
    parts.map(str::to_lowercase).collect()
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
        for other in [
            "NVIDIA H100 PCIe",
            "NVIDIA H100 NVL",
            "NVIDIA A100-SXM4-40GB",
            "NVIDIA L40",
            "NVIDIA A10G",
            "NVIDIA H20",
            "NVIDIA GeForce RTX 4090 D",
            "NVIDIA GeForce RTX 4090 Laptop GPU",
            "NVIDIA GH200 144G HBM3e",
        ] {
            assert_eq!(id(other), None, "{other}");
        }
    }

    #[test]
    fn gpus_are_found_by_the_names_that_people_say() {
        for (name, id) in [
            ("4090", "rtx4090"),
            ("rtx-5090", "rtx5090"),
            ("GeForce RTX 4090", "rtx4090"),
            ("spark", "gb10"),
            ("DGX Spark", "gb10"),
            ("NVIDIA H100 80GB HBM3", "h100"),
            ("L40S", "l40s"),
            ("mi300x", "mi300x"),
        ] {
            assert_eq!(find(name).unwrap().id, id, "{name}");
        }
        for name in ["nvidia", "", "geforce", "h100 pcie", "l40", "h200-lab"] {
            assert!(find(name).is_err(), "{name}");
        }
    }

    #[test]
    fn the_nearest_name_is_suggested() {
        assert_eq!(find("H200").unwrap().id, "h200");
        assert_eq!(find("h20").unwrap_err().nearest, "h200");
    }
}
