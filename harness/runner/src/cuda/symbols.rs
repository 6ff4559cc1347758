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

/// Symbols of the kernel that people call `name`: those whose plain name (without scope, template
/// arguments and parameters) is the one in `name`, and of these the instances with the template
/// arguments in `name`. If `name` has none, or no instance has all of them, those that begin with
/// what is given; else all.
pub(crate) fn matching_symbols(symbols: &[String], name: &str) -> Vec<String> {
    let (head, arguments) = match name.split_once('<') {
        Some((head, rest)) => (head, Some(plain_arguments(rest.trim_end().trim_end_matches('>')))),
        None => (name, None),
    };
    let plain = head.trim().rsplit("::").next().unwrap_or(head);
    let named = symbols.iter().filter(|symbol| plain_name(symbol) == Some(plain));
    let named: Vec<String> = named.cloned().collect();
    let Some(wanted) = arguments else { return named };
    let filtered = |is_it: &dyn Fn(&str) -> bool| -> Vec<String> {
        let instances = named.iter().filter(|symbol| {
            template_arguments(symbol, plain).is_some_and(|arguments| is_it(&arguments))
        });
        instances.cloned().collect()
    };
    let exact = filtered(&|arguments| arguments == wanted);
    if !exact.is_empty() {
        return exact;
    }
    let begins = filtered(&|arguments| arguments.starts_with(&wanted));
    if begins.is_empty() { named } else { begins }
}

/// The template arguments of a mangled kernel, as [`plain_arguments`] writes them.
fn template_arguments(symbol: &str, plain: &str) -> Option<String> {
    const MAX_SYMBOL_BYTES: usize = 16 << 10;
    let parsed =
        cpp_demangle::Symbol::new(symbol.get(..MAX_SYMBOL_BYTES).unwrap_or(symbol)).ok()?;
    let demangled = parsed.demangle().ok()?;
    let open = demangled.find(&format!("{plain}<"))? + plain.len();
    let mut depth = 0_usize;
    let end = demangled.get(open..)?.char_indices().find_map(|(at, c)| {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        (depth == 0).then_some(open + at)
    })?;
    Some(plain_arguments(demangled.get(open + 1..end)?))
}

/// Template arguments without spaces and casts, and with one spelling for each type and number.
fn plain_arguments(text: &str) -> String {
    let mut depth = 0_i32;
    let arguments = text.split(|c: char| {
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    });
    arguments.map(plain_argument).collect::<Vec<_>>().join(",")
}

fn plain_argument(argument: &str) -> String {
    let argument = argument.trim();
    // `(Mode)1` is 1.
    let value = match argument.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((_, value)) if !value.is_empty() => value,
        _ => argument,
    };
    let digits = value.trim_end_matches(['u', 'l', 'U', 'L']);
    if !digits.is_empty() && digits.trim_start_matches('-').bytes().all(|b| b.is_ascii_digit()) {
        return digits.to_owned();
    }
    let words: Vec<&str> = value.split_whitespace().collect();
    let spelling = match words.join(" ").as_str() {
        "true" => "1",
        "false" => "0",
        "half" => "__half",
        "nv_bfloat16" => "__nv_bfloat16",
        "half2" => "__half2",
        "nv_bfloat162" => "__nv_bfloat162",
        "unsigned" | "uint32_t" | "uint" => "unsigned int",
        "int32_t" | "signed" => "int",
        "uint64_t" | "size_t" | "ulong" => "unsigned long",
        "int64_t" | "ptrdiff_t" => "long",
        "uint16_t" | "ushort" => "unsigned short",
        "int16_t" => "short",
        "uint8_t" | "uchar" => "unsigned char",
        "int8_t" => "signed char",
        other => return other.replace(' ', ""),
    };
    spelling.replace(' ', "")
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
    fn instances_are_named_as_people_write_them() {
        let symbols: Vec<String> = [
            "_Z6matmulIfLi16EEvPKT_S2_PS0_iii",
            "_Z6matmulIfLi32EEvPKT_S2_PS0_iii",
            "_Z6matmulI6__halfLi16EEvPKT_S3_PS1_iii",
            "_ZN3app4scanIjLb1EEEvPT_",
            "plain",
        ]
        .map(str::to_owned)
        .to_vec();
        for (name, found) in [
            ("matmul<float, 16>", vec![0]),
            ("matmul<float,32>", vec![1]),
            ("matmul<half, 16>", vec![2]),
            ("matmul<half>", vec![2]),
            ("matmul<float>", vec![0, 1]),
            ("matmul", vec![0, 1, 2]),
            ("app::scan<unsigned int, true>", vec![3]),
            ("scan<uint32_t, 1>", vec![3]),
            ("plain", vec![4]),
            ("other", vec![]),
        ] {
            let expected: Vec<String> =
                found.iter().map(|at: &usize| symbols[*at].clone()).collect();
            assert_eq!(matching_symbols(&symbols, name), expected, "{name}");
        }
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
