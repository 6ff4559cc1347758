//! The ranks of a program that a tool measures, as `--ranks` selects them.

use std::fmt;
use std::str::FromStr;

use rgpu_model::ranks::MAX_RANKS;

/// A value of `--ranks`: `all`, or numbers such as `0,3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RankSelection {
    /// Every rank of the program.
    All,
    /// The ranks with these numbers, in order, each once. Never empty.
    Numbers(Vec<u32>),
}

impl RankSelection {
    /// The number of the only selected rank; `None` for several or all.
    pub fn single(&self) -> Option<u32> {
        match self {
            Self::Numbers(numbers) if numbers.len() == 1 => numbers.first().copied(),
            _ => None,
        }
    }
}

impl FromStr for RankSelection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        let number = |text: &str| match text.parse::<u32>() {
            Ok(number) if number < MAX_RANKS => Ok(number),
            _ => Err("write `all`, or numbers of ranks such as `0` or `0,3`".to_owned()),
        };
        let mut numbers = text.split(',').map(number).collect::<Result<Vec<u32>, String>>()?;
        numbers.sort_unstable();
        numbers.dedup();
        Ok(Self::Numbers(numbers))
    }
}

impl fmt::Display for RankSelection {
    /// `all ranks`, `rank 0`, `ranks 0, 3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all ranks"),
            Self::Numbers(numbers) => {
                let names: Vec<String> = numbers.iter().map(u32::to_string).collect();
                let s = if names.len() == 1 { "" } else { "s" };
                write!(f, "rank{s} {}", names.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_all_or_named_by_number() {
        let shown = |text: &str| text.parse::<RankSelection>().map(|ranks| ranks.to_string());
        assert_eq!(shown("all").unwrap(), "all ranks");
        assert_eq!(shown("0").unwrap(), "rank 0");
        assert_eq!(shown("3,0,3").unwrap(), "ranks 0, 3");
        for bad in ["", "0,", "-1", "one", "1048576"] {
            assert!(shown(bad).unwrap_err().contains("`0,3`"), "{bad}");
        }
        assert_eq!("2".parse::<RankSelection>().unwrap().single(), Some(2));
        assert_eq!("all".parse::<RankSelection>().unwrap().single(), None);
    }
}
