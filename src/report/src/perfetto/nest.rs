//! Distributes slices to tracks so that the slices of each track nest.

/// A slice of a track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slice<'a> {
    pub(super) name: &'a str,
    pub(super) category: &'static str,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    /// The flow that connects the slice with slices of other tracks.
    pub(super) flow: Option<u64>,
    /// Numbers shown with the slice.
    pub(super) facts: Vec<(&'static str, u64)>,
}

impl<'a> Slice<'a> {
    /// A slice that starts at `start_ns` and lasts `length` nanoseconds.
    pub(super) fn new(name: &'a str, category: &'static str, start_ns: u64, length: u64) -> Self {
        let end_ns = start_ns.saturating_add(length);
        Self { name, category, start_ns, end_ns, flow: None, facts: Vec::new() }
    }
}

/// The maximum number of tracks for one list. Further crossing slices are cut to fit the last
/// track.
const MAX_LANES: usize = 64;

/// The slices in lists that each nest, sorted by start, outer slices first.
pub(super) fn lanes(mut slices: Vec<Slice<'_>>) -> Vec<Vec<Slice<'_>>> {
    slices.sort_by_key(|s| (s.start_ns, std::cmp::Reverse(s.end_ns)));
    let mut lanes: Vec<(Vec<u64>, Vec<Slice<'_>>)> = Vec::new();
    for mut slice in slices {
        let fits = lanes.iter_mut().position(|(open, _)| {
            while open.pop_if(|end| *end <= slice.start_ns).is_some() {}
            open.last().is_none_or(|end| slice.end_ns <= *end)
        });
        let at = match fits {
            Some(at) => at,
            None if lanes.len() < MAX_LANES => {
                lanes.push(Default::default());
                lanes.len() - 1
            }
            None => {
                let last = lanes.len() - 1;
                let end = lanes[last].0.last().copied().unwrap_or(slice.end_ns);
                slice.end_ns = slice.end_ns.min(end);
                last
            }
        };
        lanes[at].0.push(slice.end_ns);
        lanes[at].1.push(slice);
    }
    lanes.into_iter().map(|(_, lane)| lane).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_that_cross_take_another_track_and_those_that_nest_do_not() {
        let slice = |name, start, end| Slice::new(name, "x", start, end - start);
        let dealt = lanes(vec![
            slice("outer", 0, 100),
            slice("inner", 0, 40),
            slice("crosses", 20, 60),
            slice("next", 40, 100),
            slice("later", 100, 130),
        ]);
        let names: Vec<Vec<&str>> =
            dealt.iter().map(|l| l.iter().map(|s| s.name).collect()).collect();
        assert_eq!(names, [vec!["outer", "inner", "next", "later"], vec!["crosses"]]);
    }
}
