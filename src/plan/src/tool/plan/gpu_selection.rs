//! The GPUs that a program gets, as `--gpus` selects them.

use std::str::FromStr;

use rgpu_protocol::plan::{GpuChoice, KnownGpu};

/// The GPUs that a program gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuSelection {
    /// This many, whichever are free.
    Number(u32),
    /// All of the host.
    All,
    /// The GPUs with these indexes.
    Indexes(Vec<u32>),
}

/// Most GPUs that can be named by number.
const MAX_GPUS: u32 = 64;

impl Default for GpuSelection {
    fn default() -> Self {
        Self::Number(1)
    }
}

impl FromStr for GpuSelection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        let number = |text: &str| match text.parse::<u32>() {
            Ok(number) if number <= MAX_GPUS => Ok(number),
            _ => Err(format!("write a number up to {MAX_GPUS}, `all`, or indexes such as `0,2`")),
        };
        if !text.contains(',') {
            return number(text).map(Self::Number);
        }
        let indexes = text.split(',').filter(|part| !part.is_empty()).map(number);
        let mut indexes = indexes.collect::<Result<Vec<u32>, String>>()?;
        indexes.sort_unstable();
        indexes.dedup();
        if indexes.is_empty() {
            return Err(format!("`{text}` names no GPU: write indexes such as `0,2`"));
        }
        Ok(Self::Indexes(indexes))
    }
}

/// The host does not have the GPUs that were asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct MissingGpus {
    text: String,
}

impl GpuSelection {
    /// Whether it is one GPU, no matter which.
    pub fn is_one(&self) -> bool {
        *self == Self::Number(1)
    }

    /// How many GPUs are asked for, whichever they are. `None`: all, those with some indexes, or no
    /// GPU.
    pub fn count_of_any(&self) -> Option<u32> {
        match self {
            Self::Number(number @ 1..) => Some(*number),
            _ => None,
        }
    }

    /// The number, if it does not depend on the host.
    pub fn number(&self) -> Option<u32> {
        match self {
            Self::Number(number) => Some(*number),
            Self::All => None,
            Self::Indexes(indexes) => u32::try_from(indexes.len()).ok(),
        }
    }

    /// The GPUs of `known` that qualify, and how many of them to lock. If `choice` allows none of
    /// them, the host's agent says so.
    pub fn on_host(
        &self,
        known: Vec<KnownGpu>,
        choice: &GpuChoice,
    ) -> Result<(Vec<KnownGpu>, u32), MissingGpus> {
        let is_allowed = |gpu: &KnownGpu| choice.allows(gpu.index, &gpu.uuid, &gpu.name);
        if !known.is_empty() && !known.iter().any(is_allowed) {
            return Ok((known, 1));
        }
        let known: Vec<KnownGpu> = known.into_iter().filter(is_allowed).collect();
        let there = u32::try_from(known.len()).unwrap_or(u32::MAX);
        let gpus = match there {
            0 => "no GPU".to_owned(),
            1 => "1 GPU".to_owned(),
            there => format!("{there} GPUs"),
        };
        let allowed = if *choice == GpuChoice::Any { "" } else { " that `--gpu` allows" };
        let missing = |text: String| Err(MissingGpus { text });
        match self {
            Self::Number(number) if there < *number => {
                let are = if *number == 1 { "is" } else { "are" };
                missing(format!("the host has {gpus}{allowed}, but {number} {are} requested"))
            }
            Self::Number(number) => Ok((known, *number)),
            Self::All if there == 0 => {
                missing("the host has no GPU, but all are requested".to_owned())
            }
            Self::All => Ok((known, there)),
            Self::Indexes(indexes) => {
                let absent =
                    indexes.iter().find(|index| !known.iter().any(|gpu| gpu.index == **index));
                if let Some(index) = absent {
                    return missing(format!(
                        "the host has {gpus}{allowed}, but none has the index {index}"
                    ));
                }
                let many = u32::try_from(indexes.len()).unwrap_or(u32::MAX);
                let chosen = known.into_iter().filter(|gpu| indexes.contains(&gpu.index));
                Ok((chosen.collect(), many))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(many: u32) -> Vec<KnownGpu> {
        let gpu = |index| KnownGpu {
            index,
            uuid: format!("GPU-{index}"),
            name: "NVIDIA H200".to_owned(),
        };
        (0..many).map(gpu).collect()
    }

    fn of(text: &str, many: u32) -> Result<(Vec<u32>, u32), String> {
        let selection: GpuSelection = text.parse()?;
        let all = selection.on_host(host(many), &GpuChoice::Any);
        let (gpus, number) = all.map_err(|e| e.to_string())?;
        Ok((gpus.iter().map(|gpu| gpu.index).collect(), number))
    }

    #[test]
    fn a_number_all_or_a_list_of_gpus_are_asked_for() {
        assert_eq!(of("2", 4), Ok((vec![0, 1, 2, 3], 2)));
        assert_eq!(of("all", 3), Ok((vec![0, 1, 2], 3)));
        assert_eq!(of("2,0", 4), Ok((vec![0, 2], 2)));
        assert_eq!(of("2,", 4), Ok((vec![2], 1)));
        assert!(of("two", 4).unwrap_err().contains("`all`"));
        assert!(of(",", 4).unwrap_err().contains("names no GPU"));
    }

    #[test]
    fn more_gpus_than_there_are_is_an_error() {
        assert_eq!(of("3", 2).unwrap_err(), "the host has 2 GPUs, but 3 are requested");
        assert_eq!(of("2", 1).unwrap_err(), "the host has 1 GPU, but 2 are requested");
        assert_eq!(of("1", 0).unwrap_err(), "the host has no GPU, but 1 is requested");
        assert!(of("0,5", 2).unwrap_err().contains("none has the index 5"));
        assert!(of("all", 0).unwrap_err().contains("no GPU"));
    }

    #[test]
    fn only_gpus_that_are_allowed_count() {
        let mixed = || {
            let mut gpus = host(3);
            gpus[1].name = "NVIDIA L4".to_owned();
            gpus
        };
        let allowed = |text: &str, choice: GpuChoice| {
            let selection: GpuSelection = text.parse().unwrap();
            let (gpus, number) = selection.on_host(mixed(), &choice).map_err(|e| e.to_string())?;
            Ok::<_, String>((gpus.iter().map(|gpu| gpu.index).collect::<Vec<u32>>(), number))
        };
        let h200 = || GpuChoice::Name("h200".to_owned());
        assert_eq!(allowed("all", h200()), Ok((vec![0, 2], 2)));
        assert_eq!(allowed("all", GpuChoice::Index(1)), Ok((vec![1], 1)));
        assert_eq!(
            allowed("3", h200()).unwrap_err(),
            "the host has 2 GPUs that `--gpu` allows, but 3 are requested"
        );
        assert!(allowed("0,1", h200()).unwrap_err().contains("none has the index 1"));
        // The agent names the GPUs that there are.
        assert_eq!(allowed("all", GpuChoice::Name("b200".to_owned())), Ok((vec![0, 1, 2], 1)));
    }
}
