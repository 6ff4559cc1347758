//! Names of written files: the input's stem and the architecture, made unique.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Mutex;

/// Most characters of a kernel's name in a file name: names of templates have thousands.
const MAX_PART_CHARS: usize = 100;

/// The names taken in an output folder.
#[derive(Debug, Default)]
pub struct FileNames(Mutex<HashSet<String>>);

impl FileNames {
    /// Reserves a name, so that no file gets it.
    pub fn reserve(&self, name: &str) {
        if let Ok(mut taken) = self.0.lock() {
            taken.insert(name.to_lowercase());
        }
    }

    /// A free name such as `vecadd.sm_90a.sass`, or `vecadd.sm_90a-2.sass` if that is taken; with a
    /// kernel's name as `part`, `vecadd.sm_90a.saxpy.sass`. Case is ignored, since some file
    /// systems ignore it.
    pub fn fresh(&self, input: &Path, arch: &str, part: Option<&str>, extension: &str) -> String {
        let stem = input.file_stem().map_or("code".into(), |s| s.to_string_lossy());
        // Compiled files often have the architecture in their name.
        let has_arch = stem.split('.').any(|part| part == arch);
        let base = if has_arch { stem.into_owned() } else { format!("{stem}.{arch}") };
        let part: Option<String> = part.map(|part| part.chars().take(MAX_PART_CHARS).collect());
        let base = part.map_or(base.clone(), |part| format!("{base}.{part}"));
        // Names and architectures come from untrusted files.
        let base: String = base
            .chars()
            .map(|c| if c.is_alphanumeric() || "._-+".contains(c) { c } else { '_' })
            .collect();
        let base = base.trim_start_matches('.');
        let Ok(mut taken) = self.0.lock() else { return format!("{base}.{extension}") };
        let mut name = format!("{base}.{extension}");
        let mut number = 2;
        while !taken.insert(name.to_lowercase()) {
            name = format!("{base}-{number}.{extension}");
            number += 1;
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_inputs_of_one_stem_get_two_names() {
        let names = FileNames::default();
        let name = |path: &str, arch: &str| names.fresh(Path::new(path), arch, None, "sass");
        assert_eq!(name("a/k.cubin", "sm_90a"), "k.sm_90a.sass");
        assert_eq!(name("b/k.cubin", "sm_90a"), "k.sm_90a-2.sass");
        assert_eq!(name("k.sm_80.cubin", "sm_80"), "k.sm_80.sass");
        assert_eq!(name("k.sm_80.O3.cubin", "sm_80"), "k.sm_80.O3.sass");
        assert_eq!(name("sm_100a.cubin", "sm_100a"), "sm_100a.sass");
        assert_eq!(name("x/..", "../e"), "code..._e.sass");
        assert_eq!(name("K.cubin", "sm_90a"), "K.sm_90a-3.sass");
        let part = |part: &str| names.fresh(Path::new("k.cubin"), "sm_90a", Some(part), "sass");
        assert_eq!(part("sum<float, (int)4>"), "k.sm_90a.sum_float___int_4_.sass");
        assert_eq!(part("sum<float, (int)4>"), "k.sm_90a.sum_float___int_4_-2.sass");
        assert_eq!(part(&"x".repeat(3000)).len(), "k.sm_90a..sass".len() + 100);
    }
}
