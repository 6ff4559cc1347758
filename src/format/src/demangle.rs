//! Demangles C++ (Itanium) and Rust symbols.

/// Longer symbols, in bytes, are not demangled, because demanglers are recursive.
const MAX_SYMBOL_BYTES: usize = 32 << 10;

/// The demangled form of `symbol`; `None` if it is not mangled or its form is unknown.
pub fn demangle(symbol: &str) -> Option<String> {
    if symbol.len() > MAX_SYMBOL_BYTES {
        return None;
    }
    // Legacy Rust names are also valid C++ names, so the stricter Rust demangler goes first.
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        return Some(format!("{name:#}"));
    }
    if !symbol.starts_with("_Z") {
        return None;
    }
    let limits = cpp_demangle::ParseOptions::default().recursion_limit(96);
    let name = cpp_demangle::Symbol::new_with_options(symbol, &limits).ok()?;
    let shown = cpp_demangle::DemangleOptions::new().recursion_limit(96);
    name.demangle_with_options(&shown).ok().filter(|text| text != symbol)
}

/// A demangled name without its arguments: `block_sum<float>` of `void block_sum<float>(float*)`.
pub fn short(name: &str) -> &str {
    let mut depth = 0_usize;
    let mut end = name.len();
    // `(anonymous namespace)::f(int)`: the last parenthesis at depth 0 that is not part of a name.
    for (at, c) in name.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            '(' if depth == 0 && !name[at..].starts_with("(anonymous") => {
                end = at;
                break;
            }
            _ => {}
        }
    }
    let head = &name[..end];
    let mut depth = 0_usize;
    let mut start = 0;
    for (at, c) in head.char_indices() {
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 => start = at + 1,
            _ => {}
        }
    }
    &head[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_both_languages_are_demangled_and_others_left_alone() {
        assert_eq!(
            demangle("_Z8spillingPf4Pairct").as_deref(),
            Some("spilling(float*, Pair, char, unsigned short)")
        );
        assert_eq!(
            demangle("_ZN4core3fmt5Write9write_str17h0123456789abcdefE").as_deref(),
            Some("core::fmt::Write::write_str")
        );
        assert_eq!(demangle("_RNvC5crate4main").as_deref(), Some("crate::main"));
        assert_eq!(demangle("vecadd"), None);
        assert_eq!(demangle(&"_Z".repeat(100_000)), None);
    }

    #[test]
    fn a_short_name_has_neither_arguments_nor_a_return_type() {
        assert_eq!(short("void a::sum<float, (int)3>(float*, int)"), "a::sum<float, (int)3>");
        assert_eq!(short("(anonymous namespace)::k(int)"), "(anonymous namespace)::k");
        assert_eq!(short("vecadd"), "vecadd");
    }
}
