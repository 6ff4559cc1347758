//! Converts units that ncu prints (`us`, `Mbyte`) to base units (`ns`, `byte`).

use std::borrow::Cow;

/// The base unit of `unit`, and the factor: `us` is 1000 `ns`, `Mbyte/s` is 1e6 `byte/s`. Prefixes
/// are decimal, as in ncu. Units of older versions (`usecond`, `second`) get their current
/// spelling. A unit without a prefix is its own base unit.
pub fn scale(unit: &str) -> (Cow<'_, str>, f64) {
    let (head, tail) = unit.split_once('/').map_or((unit, ""), |(head, tail)| (head, tail));
    let tail = match tail {
        "second" => "s",
        tail => tail,
    };
    let time = match head {
        "ns" | "nsecond" => Some(1.0),
        "us" | "usecond" => Some(1e3),
        "ms" | "msecond" => Some(1e6),
        "s" | "second" => Some(1e9),
        _ => None,
    };
    if let (Some(factor), "") = (time, tail) {
        return (Cow::Borrowed("ns"), factor);
    }
    let prefixes = [("K", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12), ("P", 1e15)];
    let prefixed = prefixes.iter().find_map(|(prefix, factor)| {
        // Accepts `Kbyte`, but not a unit that merely begins with the letter.
        let base =
            head.strip_prefix(prefix).filter(|b| b.starts_with(|c: char| c.is_lowercase()))?;
        Some((base, *factor))
    });
    match (prefixed, tail) {
        (Some((base, factor)), "") => (Cow::Borrowed(base), factor),
        (Some((base, factor)), tail) => (Cow::Owned(format!("{base}/{tail}")), factor),
        (None, "s") if unit.ends_with("/second") => (Cow::Owned(format!("{head}/s")), 1.0),
        (None, _) => (Cow::Borrowed(unit), 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaled_units_come_back_to_their_base() {
        let scaled = |unit| {
            let (base, factor) = scale(unit);
            (base.into_owned(), factor)
        };
        assert_eq!(scaled("us"), ("ns".to_owned(), 1e3));
        assert_eq!(scaled("msecond"), ("ns".to_owned(), 1e6));
        assert_eq!(scaled("Tbyte/s"), ("byte/s".to_owned(), 1e12));
        assert_eq!(scaled("Gbyte/second"), ("byte/s".to_owned(), 1e9));
        assert_eq!(scaled("byte/second"), ("byte/s".to_owned(), 1.0));
        assert_eq!(scaled("Kbyte/block"), ("byte/block".to_owned(), 1e3));
        assert_eq!(scaled("Ghz"), ("hz".to_owned(), 1e9));
        assert_eq!(scaled("inst/cycle"), ("inst/cycle".to_owned(), 1.0));
        assert_eq!(scaled("SM"), ("SM".to_owned(), 1.0));
        assert_eq!(scaled("%"), ("%".to_owned(), 1.0));
        assert_eq!(scaled(""), (String::new(), 1.0));
    }
}
