//! Demangles C++ (Itanium) and Rust symbols.

use std::fmt::{self, Write};

/// Longer symbols, in bytes, are not demangled, because demanglers are recursive.
const MAX_SYMBOL_BYTES: usize = 32 << 10;

/// Bytes of text that each byte of a symbol may become. Substitutions may refer to each other, so
/// that a few more bytes of a hostile symbol multiply the text.
const MAX_GROWTH: usize = 16;

/// Bytes of text that any symbol may become.
const MIN_NAME_LIMIT: usize = 1 << 10;

/// A demangled name of limited length.
struct LimitedName {
    text: String,
    bytes_left: usize,
}

impl LimitedName {
    fn for_symbol(symbol: &str) -> Self {
        Self { text: String::new(), bytes_left: MIN_NAME_LIMIT + MAX_GROWTH * symbol.len() }
    }
}

impl Write for LimitedName {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        self.bytes_left = self.bytes_left.checked_sub(piece.len()).ok_or(fmt::Error)?;
        self.text.push_str(piece);
        Ok(())
    }
}

/// The demangled form of `symbol`; `None` if it is not mangled, its form is unknown, or it becomes
/// more than 16 times as long.
pub fn demangle(symbol: &str) -> Option<String> {
    if symbol.len() > MAX_SYMBOL_BYTES {
        return None;
    }
    let mut limited = LimitedName::for_symbol(symbol);
    // Legacy Rust names are also valid C++ names, so the stricter Rust demangler goes first.
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        return write!(limited, "{name:#}").is_ok().then_some(limited.text);
    }
    if !symbol.starts_with("_Z") {
        return None;
    }
    let limits = cpp_demangle::ParseOptions::default().recursion_limit(96);
    let name = cpp_demangle::Symbol::new_with_options(symbol, &limits).ok()?;
    let shown = cpp_demangle::DemangleOptions::new().recursion_limit(96);
    name.structured_demangle(&mut limited, &shown).ok()?;
    Some(limited.text).filter(|text| text != symbol)
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
    fn a_name_that_grows_without_bound_stays_mangled() {
        // Each level has four times the level before it as its arguments.
        let mut cpp = String::from("_Z1f1PIiiiiE");
        for level in 1..=30 {
            let last = format!("S{}_", radix_36(level - 1));
            cpp.push_str(&format!("S_I{last}{last}{last}{last}E"));
        }
        assert_eq!(demangle(&cpp), None);
        // Tuples of ten references to the tuple before.
        let rust = [
            "_RINvC1a1fTllllllllllE",
            "TB7_B7_B7_B7_B7_B7_B7_B7_B7_B7_E",
            "TBj_Bj_Bj_Bj_Bj_Bj_Bj_Bj_Bj_Bj_E",
            "TBP_BP_BP_BP_BP_BP_BP_BP_BP_BP_E",
            "TB1l_B1l_B1l_B1l_B1l_B1l_B1l_B1l_B1l_B1l_E",
            "TB1R_B1R_B1R_B1R_B1R_B1R_B1R_B1R_B1R_B1R_EE",
        ];
        assert_eq!(demangle(&rust.concat()), None);
        let mut limited = LimitedName::for_symbol("abc");
        assert!(limited.write_str(&"x".repeat(1024 + 48)).is_ok());
        assert!(limited.write_str("x").is_err());
    }

    /// The number of a substitution as the Itanium ABI writes it.
    fn radix_36(mut number: u32) -> String {
        let mut digits = Vec::new();
        loop {
            digits.push(char::from_digit(number % 36, 36).unwrap().to_ascii_uppercase());
            number /= 36;
            if number == 0 {
                return digits.into_iter().rev().collect();
            }
        }
    }

    #[test]
    fn a_short_name_has_neither_arguments_nor_a_return_type() {
        assert_eq!(short("void a::sum<float, (int)3>(float*, int)"), "a::sum<float, (int)3>");
        assert_eq!(short("(anonymous namespace)::k(int)"), "(anonymous namespace)::k");
        assert_eq!(short("vecadd"), "vecadd");
    }
}
