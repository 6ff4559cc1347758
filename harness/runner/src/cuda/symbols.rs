//! Finds the kernels of a module, so that a plain name can select a mangled one.
//!
//! PTX: the word after each `.entry`. A cubin (ELF): sections `.text.NAME`, found as strings in the
//! section name table (a linker may keep them only as the end of `.rela.text.NAME`). A compressed
//! fatbin cannot be searched; it needs the exact symbol.

/// Kernel symbols in order of appearance, without duplicates.
pub(crate) fn kernel_symbols(image: &[u8]) -> Vec<String> {
    let is_elf = image.starts_with(b"\x7fELF");
    let marker: &[u8] = if is_elf { b".text." } else { b".entry" };
    let mut names: Vec<String> = Vec::new();
    for start in find_all(image, marker) {
        let rest = &image[start + marker.len()..];
        let rest = if is_elf { rest } else { rest.trim_ascii_start() };
        let is_name = |&&c: &&u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'$' | b'.');
        let name: Vec<u8> = rest.iter().take_while(is_name).copied().collect();
        let name = String::from_utf8_lossy(&name).into_owned();
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Symbols whose plain name (without scope, template arguments and parameters) equals `plain`.
pub(crate) fn matching_symbols(symbols: &[String], plain: &str) -> Vec<String> {
    symbols.iter().filter(|symbol| plain_name(symbol) == Some(plain)).cloned().collect()
}

/// The innermost identifier of an Itanium-mangled name, or the name itself if it is not mangled;
/// `None` if the mangled name is malformed.
fn plain_name(symbol: &str) -> Option<&str> {
    let Some(mut rest) = symbol.strip_prefix("_Z") else { return Some(symbol) };
    if let Some(nested) = rest.strip_prefix('N') {
        rest = nested.trim_start_matches(['r', 'V', 'K']);
    }
    let mut last = None;
    loop {
        // Internal linkage is marked by an `L` before the length.
        let here = rest.strip_prefix('L').unwrap_or(rest);
        let digits = here.len() - here.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let Ok(length) = here[..digits].parse::<usize>() else { return last };
        let end = digits.checked_add(length)?;
        last = Some(here.get(digits..end)?);
        rest = here.get(end..)?;
    }
}

fn find_all<'a>(haystack: &'a [u8], needle: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    haystack.windows(needle.len()).enumerate().filter(move |(_, w)| *w == needle).map(|(i, _)| i)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_come_out_of_mangled_ones() {
        for (symbol, plain) in [
            ("vecadd", "vecadd"),
            ("_Z6vecaddPKfS0_Pfi", "vecadd"),
            ("_ZN3app6detail6reduceIfLi4EEEvPT_", "reduce"),
            ("_ZN12_GLOBAL__N_14stepEv", "step"),
            ("_ZL5localv", "local"),
        ] {
            assert_eq!(plain_name(symbol), Some(plain), "{symbol}");
        }
        assert_eq!(plain_name("_Z99x"), None);
    }

    #[test]
    fn kernels_of_real_cubins_are_found() {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/cubin");
        for cubin in ["12.9/facts/sm_90a.cubin", "13.5/facts/sm_100a.cubin"] {
            let image = std::fs::read(format!("{fixtures}/{cubin}")).unwrap();
            let mut found = kernel_symbols(&image);
            found.sort();
            assert_eq!(found, ["_Z8spillingPf4Pairct", "_Z9clusteredPii", "block_sum"], "{cubin}");
            assert_eq!(matching_symbols(&found, "spilling"), ["_Z8spillingPf4Pairct"]);
        }
    }

    #[test]
    fn kernels_are_found_in_ptx() {
        let ptx =
            b".version 8.0\n.visible .entry _Z6vecaddPf(\n.param .u64 p)\n{}\n.entry plain()\n";
        let symbols = kernel_symbols(ptx);
        assert_eq!(symbols, ["_Z6vecaddPf", "plain"]);
        assert_eq!(matching_symbols(&symbols, "vecadd"), ["_Z6vecaddPf"]);
    }

    #[test]
    fn kernels_are_found_in_the_section_names_of_a_cubin() {
        let image = b"\x7fELF....\0.text._Z1kIfEvv\0.nv.info._Z1kIfEvv\0.text._Z1kIdEvv\0";
        assert_eq!(kernel_symbols(image), ["_Z1kIfEvv", "_Z1kIdEvv"]);
        assert_eq!(matching_symbols(&kernel_symbols(image), "k").len(), 2);
    }
}
