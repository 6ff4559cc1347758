//! The remotes and GPUs that an entry uses alone.

use rgpu_run::config::LOCAL;

/// The remotes and GPUs that an entry uses alone. Entries that need the same one never run at the
/// same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// The remotes, sorted; this machine is [`LOCAL`].
    remotes: Vec<String>,
    /// Indices and UUIDs, sorted; empty: all GPUs of the remotes.
    gpus: Vec<String>,
}

impl Resource {
    /// The needs of a command line: lists with commas in between.
    pub fn parse(remote: Option<&str>, gpu: Option<&str>) -> Result<Self, String> {
        let remotes = match remote {
            None => vec![LOCAL.to_owned()],
            Some(text) => list(text, |word| {
                let is_name = !word.is_empty() && !word.contains(|c: char| c.is_whitespace());
                is_name.then(|| word.to_owned())
            })
            .ok_or_else(|| format!("`--remote {text}` is not a remote name"))?,
        };
        let gpus = match gpu {
            None => Vec::new(),
            Some(text) => list(text, gpu_name).ok_or_else(|| {
                format!("`--gpu {text}` is neither an index, a UUID nor a list such as 0,1")
            })?,
        };
        Ok(Self { remotes, gpus })
    }

    /// The needs of a recorded entry. GPUs that cannot be read are all GPUs.
    pub(super) fn recorded(remote: Option<&str>, gpu: Option<&str>) -> Self {
        let read = Self::parse(remote, gpu).or_else(|_| Self::parse(remote, None));
        read.unwrap_or_else(|_| Self {
            remotes: vec![remote.unwrap_or(LOCAL).to_owned()],
            gpus: Vec::new(),
        })
    }

    /// The remotes with commas in between; `None`: this machine.
    pub(super) fn remote(&self) -> Option<String> {
        (self.remotes != [LOCAL]).then(|| self.remotes.join(","))
    }

    /// The GPUs with commas in between; `None`: all.
    pub(super) fn gpu(&self) -> Option<String> {
        (!self.gpus.is_empty()).then(|| self.gpus.join(","))
    }

    /// Whether both cannot be had at the same time.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        let shares_gpu = self.gpus.is_empty()
            || other.gpus.is_empty()
            || self.gpus.iter().any(|one| other.gpus.iter().any(|two| may_be_same(one, two)));
        shares_gpu && self.remotes.iter().any(|remote| other.remotes.contains(remote))
    }
}

/// The items of a list, sorted, each once; `None` if one is wrong.
fn list(text: &str, item: impl Fn(&str) -> Option<String>) -> Option<Vec<String>> {
    let mut items = text.split(',').map(|word| item(word.trim())).collect::<Option<Vec<_>>>()?;
    items.sort();
    items.dedup();
    Some(items)
}

/// An index without zeros in front, or a UUID (or its beginning) in small letters.
fn gpu_name(word: &str) -> Option<String> {
    if word.bytes().all(|byte| byte.is_ascii_digit()) {
        return word.parse::<u32>().ok().map(|index| index.to_string());
    }
    let (kind, digits) = word.split_once('-')?;
    let kind = kind.to_ascii_uppercase();
    let is_uuid = matches!(kind.as_str(), "GPU" | "MIG")
        && !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    is_uuid.then(|| format!("{kind}-{}", digits.to_ascii_lowercase()))
}

/// Whether two names may mean the same GPU. Only the host knows which index has which UUID, and
/// which GPU has a part that MIG made.
fn may_be_same(one: &str, two: &str) -> bool {
    let kind = |name: &str| name.split_once('-').map(|(kind, _)| kind.to_owned());
    match (kind(one), kind(two)) {
        (None, None) => one == two,
        (Some(first), Some(second)) if first == second => {
            one.starts_with(two) || two.starts_with(one)
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_are_sets_and_this_machine_has_one_name() {
        let needs = |remote: &str, gpu: &str| {
            let given = |text: &str| (text != "-").then(|| text.to_owned());
            let (remote, gpu) = (given(remote), given(gpu));
            Resource::parse(remote.as_deref(), gpu.as_deref())
        };
        for (one, two, conflict) in [
            (("-", "0"), ("-", "0,1"), true),
            (("-", "00"), ("local", "1, 0"), true),
            (("-", "0"), ("-", "1"), false),
            (("-", "-"), ("local", "3"), true),
            (("h200", "0"), ("-", "0"), false),
            (("h200,h100", "-"), ("h100", "2"), true),
            (("-", "GPU-ab12"), ("-", "gpu-AB12cd"), true),
            (("-", "GPU-ab12"), ("-", "GPU-ab13"), false),
            (("-", "GPU-ab12"), ("-", "7"), true),
            (("-", "GPU-ab12"), ("-", "MIG-ab13"), true),
        ] {
            let (first, second) = (needs(one.0, one.1).unwrap(), needs(two.0, two.1).unwrap());
            assert_eq!(first.conflicts_with(&second), conflict, "{one:?} {two:?}");
            assert_eq!(second.conflicts_with(&first), conflict, "{two:?} {one:?}");
        }
        let kept = needs("local", "1,00,1").unwrap();
        assert_eq!((kept.remote(), kept.gpu()), (None, Some("0,1".to_owned())));
        for wrong in [("", "-"), ("a b", "-"), ("a,", "-"), ("-", ""), ("-", "0,"), ("-", "x")] {
            assert!(needs(wrong.0, wrong.1).is_err(), "{wrong:?}");
        }
        for wrong in ["-1", "GPU-", "GPU-xyz", "4294967296", "0;1"] {
            assert!(needs("-", wrong).is_err(), "{wrong}");
        }
        // As an earlier version recorded it: all GPUs.
        let odd = Resource::recorded(None, Some("big"));
        assert!(odd.conflicts_with(&needs("-", "5").unwrap()));
    }
}
