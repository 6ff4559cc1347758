//! Words that depend on a number: `1 row is`, `2 rows are`.

use std::fmt::Display;

/// The word or words for one, or those for several.
pub fn by_number<N: PartialEq + From<u8>>(
    n: N,
    one: &'static str,
    several: &'static str,
) -> &'static str {
    if n == N::from(1) { one } else { several }
}

/// The number with its noun: `1 launch`, `3 launches`.
pub fn counted<N: Copy + PartialEq + From<u8> + Display>(
    n: N,
    one: &'static str,
    several: &'static str,
) -> String {
    format!("{n} {}", by_number(n, one, several))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        let words = [0_u64, 1, 2].map(|n| by_number(n, "value is", "values are"));
        assert_eq!(words, ["values are", "value is", "values are"]);
        assert_eq!([1, 2].map(|n| counted(n, "launch", "launches")), ["1 launch", "2 launches"]);
    }
}
