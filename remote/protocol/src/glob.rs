//! Glob patterns of paths. The agent selects a job's artifacts with them, and the laptop checks
//! with the same code that a host sends nothing else.

/// Steps that a match may take. Without a limit, a pattern of many stars takes exponential time.
const MAX_MATCH_STEPS: u32 = 100_000;

/// Returns whether `path` matches `pattern`: `*` matches any characters but `/`, `**` matches any.
pub fn matches(pattern: &str, path: &str) -> bool {
    let mut fuel = MAX_MATCH_STEPS;
    match_bytes(pattern.as_bytes(), path.as_bytes(), &mut fuel)
}

/// `fuel` is the number of steps left.
fn match_bytes(pattern: &[u8], path: &[u8], fuel: &mut u32) -> bool {
    if *fuel == 0 {
        return false;
    }
    *fuel -= 1;
    if let Some(rest) = pattern.strip_prefix(b"**") {
        // `**/` also matches no folder at all.
        let bare = rest.strip_prefix(b"/").is_some_and(|rest| match_bytes(rest, path, fuel));
        return bare || (0..=path.len()).any(|n| match_bytes(rest, &path[n..], fuel));
    }
    if let Some(rest) = pattern.strip_prefix(b"*") {
        let span = path.iter().position(|b| *b == b'/').unwrap_or(path.len());
        return (0..=span).any(|n| match_bytes(rest, &path[n..], fuel));
    }
    match (pattern.split_first(), path.split_first()) {
        (None, None) => true,
        (Some((a, pattern)), Some((b, path))) => a == b && match_bytes(pattern, path, fuel),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_star_stays_in_a_folder_and_two_do_not() {
        for (pattern, path) in [
            ("raw/*.ncu-rep", "raw/a.ncu-rep"),
            ("**", "a/b"),
            ("**/*.ptx", "k.ptx"),
            ("a/**/b", "a/x/y/b"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [("raw/*", "raw/a/b"), ("*.ptx", "a.ptxx"), ("a", "b")] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
        assert!(!matches(&"*a".repeat(200), &format!("{}b", "a".repeat(900))), "bounded work");
    }
}
