//! `kernels.md`: kernels by GPU time, longest first, and the full names of those that are shortened.

use super::{KernelLabels, TextTable, plain, section};
use crate::kernel_sums::set_up_cell;
use crate::quantity::duration;
use rgpu_model::Profile;

pub(super) fn report(profile: &Profile, names: &KernelLabels<'_>) -> String {
    let mut out = format!("# Kernels of {}\n\n", plain(&profile.kernel.name));
    section(&mut out, table(profile, names, usize::MAX), no_kernels_note(profile));
    full_names(&mut out, profile, names);
    out
}

/// The table's short names with the tool's own, for a search in other reports.
fn full_names(out: &mut String, profile: &Profile, names: &KernelLabels<'_>) {
    let rows = profile.kernels.iter().map(|k| (names.name(&k.kernel), &k.kernel));
    let shortened: String = rows
        .filter(|(short, full)| short != *full)
        .map(|(short, full)| format!("- {}: {}\n", plain(&short), plain(full)))
        .collect();
    if !shortened.is_empty() {
        out.push_str(&format!("## Full names\n\n{shortened}"));
    }
}

/// The text for a profile without kernels.
pub(super) fn no_kernels_note(profile: &Profile) -> &'static str {
    if nothing_ran_on_a_gpu(profile) {
        return "Nothing was measured on a GPU, so no kernels are recorded.";
    }
    "This rung records no kernels."
}

/// Whether the run's host had no GPU, so that nothing in the profile is of one. A report of another
/// tool names no host.
pub(super) fn nothing_ran_on_a_gpu(profile: &Profile) -> bool {
    profile.host.is_some() && profile.gpu.is_none() && !profile.has_gpu_number()
}

/// A table of the first `max` kernels.
pub(super) fn table(profile: &Profile, names: &KernelLabels<'_>, max: usize) -> TextTable {
    let mut table = TextTable::new("kernel | device | total: | of it set-up: | calls: | mean:");
    let device = plain(profile.device.as_deref().unwrap_or("unknown"));
    for k in profile.kernels.iter().take(max) {
        table.add_row([
            plain(&names.name(&k.kernel)),
            device.clone(),
            duration(k.total_ns as f64),
            set_up_cell(k),
            k.launches.to_string(),
            duration(k.total_ns as f64 / k.launches.max(1) as f64),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_name::KernelNames;
    use rgpu_model::timeline::KernelSum;

    #[test]
    fn without_a_gpu_the_reason_is_not_the_rung() {
        let mut profile = Profile { host: Some(Default::default()), ..Profile::default() };
        assert!(no_kernels_note(&profile).starts_with("Nothing was measured on a GPU"));
        profile.gpu = Some("GPU-1".to_owned());
        assert_eq!(no_kernels_note(&profile), "This rung records no kernels.");
    }

    #[test]
    fn full_names_are_below_the_table() {
        let full = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>, std::array<char *, (unsigned long)1>>(int, T2, T3)";
        let kernel = |name: &str| KernelSum { kernel: name.to_owned(), ..KernelSum::default() };
        let kernels = vec![kernel(full), kernel("mine")];
        let profile = Profile { kernels, ..Profile::default() };
        let text = report(&profile, &KernelNames::Short.labels(&profile));
        assert!(text.contains("| fill f32 |"), "{text}");
        assert!(text.contains("- fill f32: void at::native::vectorized\\_elementwise"), "{text}");
        assert!(!text.contains("- mine"), "{text}");
        let text = report(&profile, &KernelNames::Full.labels(&profile));
        assert!(!text.contains("Full names"), "{text}");
    }
}
