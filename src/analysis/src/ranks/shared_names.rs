//! Numbers for the names and regions of all ranks. Each rank has tables of its own, so ranks are
//! compared by these numbers.

use std::collections::BTreeSet;

use rgpu_model::rank_work::{JoinedRanks, RankWork};

/// The names and regions of all ranks, in order.
pub(super) struct SharedNames<'a> {
    names: Vec<&'a str>,
    regions: Vec<&'a [String]>,
}

impl<'a> SharedNames<'a> {
    pub(super) fn new(joined: &'a JoinedRanks) -> SharedNames<'a> {
        let names = joined.ranks.iter().flat_map(|rank| rank.names.iter().map(String::as_str));
        let regions = joined.ranks.iter().flat_map(|rank| rank.regions.iter().map(Vec::as_slice));
        let (names, regions): (BTreeSet<&str>, BTreeSet<&[String]>) =
            (names.collect(), regions.collect());
        SharedNames { names: names.into_iter().collect(), regions: regions.into_iter().collect() }
    }

    /// The number of each name of a rank.
    pub(super) fn names_of(&self, rank: &RankWork) -> Vec<usize> {
        let number = |name: &String| self.names.partition_point(|known| *known < name.as_str());
        rank.names.iter().map(number).collect()
    }

    /// The number of each region of a rank.
    pub(super) fn regions_of(&self, rank: &RankWork) -> Vec<usize> {
        let number =
            |path: &Vec<String>| self.regions.partition_point(|known| *known < path.as_slice());
        rank.regions.iter().map(number).collect()
    }

    /// The name with a number.
    pub(super) fn name(&self, number: usize) -> Option<&'a str> {
        self.names.get(number).copied()
    }

    /// The path of the region with a number.
    pub(super) fn region(&self, number: usize) -> Option<&'a [String]> {
        self.regions.get(number).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_numbers_though_their_tables_differ() {
        let rank = |names: &[&str], regions: &[&[&str]]| RankWork {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            regions: regions
                .iter()
                .map(|path| path.iter().map(|part| (*part).to_owned()).collect())
                .collect(),
            ..RankWork::default()
        };
        let ranks = vec![
            rank(&["gemm", "copy"], &[&["step"], &["step", "forward"]]),
            rank(&["copy", "norm", "gemm"], &[&["step", "forward"]]),
        ];
        let joined = JoinedRanks { ranks, ..JoinedRanks::default() };
        let shared = SharedNames::new(&joined);
        let [first, second] = [0, 1].map(|at| shared.names_of(&joined.ranks[at]));
        assert_eq!((first[0], first[1]), (second[2], second[0]));
        assert_eq!(
            second.iter().filter_map(|n| shared.name(*n)).collect::<Vec<_>>(),
            ["copy", "norm", "gemm"]
        );
        let [first, second] = [0, 1].map(|at| shared.regions_of(&joined.ranks[at]));
        assert_eq!(first[1], second[0]);
        assert_eq!(shared.region(first[0]), Some(&["step".to_owned()][..]));
    }
}
