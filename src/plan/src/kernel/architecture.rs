//! GPU architectures: the one table of those that NVIDIA's compilers support.
//!
//! Source: `--gpu-architecture` of nvcc 8.0 to 13.5. Which of them a given compiler still accepts
//! is that compiler's own word.

use rgpu_model::error::{Exit, Failure, Result};

/// The number, and the suffixes that it may have (`a`: only this architecture, `f`: its family).
const ARCHITECTURES: &[(u16, &str)] = &[
    (50, ""),
    (52, ""),
    (53, ""),
    (60, ""),
    (61, ""),
    (62, ""),
    (70, ""),
    (72, ""),
    (75, ""),
    (80, ""),
    (86, ""),
    (87, ""),
    (88, ""),
    (89, ""),
    (90, "a"),
    (100, "af"),
    (101, "af"),
    (103, "af"),
    (107, "af"),
    (110, "af"),
    (120, "af"),
    (121, "af"),
];

/// Whether `text` names an existing GPU architecture: `sm_90`, `sm_90a`, `sm_100f`.
pub fn is_architecture(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("sm_") else { return false };
    ARCHITECTURES.iter().any(|(number, suffixes)| {
        rest.strip_prefix(&number.to_string()).is_some_and(|suffix| {
            suffix.is_empty() || suffix.len() == 1 && suffixes.contains(suffix)
        })
    })
}

/// All architectures, for an error message: `sm_90[a]`, `sm_100[a|f]`.
pub fn list_architectures() -> String {
    let name = |(number, suffixes): &(u16, &str)| match *suffixes {
        "" => format!("sm_{number}"),
        "a" => format!("sm_{number}[a]"),
        _ => format!("sm_{number}[a|f]"),
    };
    ARCHITECTURES.iter().map(name).collect::<Vec<_>>().join(" ")
}

/// The hint where a command takes one architecture and several are given.
pub const SEVERAL_ARCHITECTURES: &str = "`rgpu build --arch sm_90a,sm_100a` compiles for several";

/// Refuses an `--arch` that does not exist.
pub fn check_architecture(text: &str) -> Result<()> {
    if is_architecture(text) {
        return Ok(());
    }
    let failure = Failure::new(
        Exit::Usage,
        "unknown_arch",
        format!("`--arch {text}` is not an architecture"),
    );
    if text.split(',').all(is_architecture) {
        return Err(failure.hint(SEVERAL_ARCHITECTURES));
    }
    Err(failure.hint(format!("there are: {}", list_architectures())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_architectures_that_exist_are_architectures() {
        for arch in ["sm_75", "sm_90", "sm_90a", "sm_100a", "sm_100f", "sm_107", "sm_121"] {
            assert!(is_architecture(arch), "{arch}");
        }
        for arch in
            ["foo", "sm_", "sm_9", "sm_99", "sm_80a", "sm_90f", "sm_100af", "sm_100x", "SM_90"]
        {
            assert!(!is_architecture(arch), "{arch}");
        }
        assert!(list_architectures().contains("sm_90[a] sm_100[a|f]"));
    }
}
