//! The period of the sequence of launches.
//!
//! A lag is compared along the whole sequence: position i matches if token i equals token i + lag.
//! The stretch with the highest score (a match gives 1, a mismatch takes 9) is where at least nine
//! of ten positions match; so start-up, other phases and the end fall away. A second stretch, in
//! which a mismatch takes 199, is the longest without breaks. Lags come from the
//! distances between equal tokens, the rare ones first, and from the distances between the places
//! at which a shorter lag breaks; all lists are bounded, so the time grows with the length only.
//!
//! A lag that matches nearly everywhere is a step. Where a shorter one lies in it that matches
//! mostly, the shorter one is a layer, or it is the step of a loop that does something else now and
//! then. It is a step if it holds what happens once in a step: the optimizer, or new input where
//! the whole has no other event. A short lag without any event, which breaks where a longer one
//! with events does not, is a layer however well it matches.

use std::collections::HashMap;

use rgpu_model::account::StepSource;

use super::FEWEST;
use super::cuts::Cuts;
use super::launches::{Launches, Role};

mod boundary;
mod unit;

/// The share of matches from which a lag is a step.
const EXACT: f64 = 0.995;
/// The share of matches from which a lag is a block.
const BLOCK: f64 = 0.85;
/// What a mismatch takes where a match gives 1: for stretches with breaks, and for those without.
const MISMATCHES: [i64; 2] = [9, 199];
/// The most lags of each sequence that are compared along the whole of it.
const LAGS: usize = 40;
/// The number of units from which a block is a step even though it breaks.
const OFTEN: usize = 200;
/// The most positions of a long sequence that are compared first.
const SAMPLED: usize = 4_096;
/// The most periods within a period that are looked at.
const INNER: usize = 6;
/// Lags that are always compared.
const SMALL_LAGS: usize = 8;
/// The most tokens of each kind whose distances give lags.
const TOKENS: usize = 128;
/// The most occurrences of a token in a step whose distance is looked at.
const OCCURRENCES: usize = 64;
/// The most distances of a token that are compared.
const DISTANCES: usize = 48;

/// A lag and the stretch in which it repeats.
#[derive(Clone, Copy, Debug)]
struct Period {
    lag: usize,
    /// The first launch of the stretch.
    from: usize,
    /// The end of the stretch, the last repetition included.
    to: usize,
    /// Number of matches, by all positions of the stretch.
    share: f64,
    /// Number of positions that do not match.
    breaks: usize,
    /// The GPU's time of what matches, in nanoseconds.
    matched_ns: u64,
    /// Whether shapes, streams and waits were compared too.
    rich: bool,
}

/// The steps by the period.
pub(super) struct Repeated {
    pub(super) cuts: Cuts,
    /// The GPU's time of the longest repetition, in nanoseconds.
    pub(super) unbroken_ns: u64,
    /// The GPU's time of all that equals a unit, in nanoseconds.
    pub(super) repeats_ns: u64,
}

/// The steps by the period.
pub(super) fn find(launches: &Launches) -> Option<Repeated> {
    let mut periods = verified(launches, true);
    // Tokens are numbered as they come, so equal sequences have equal numbers.
    if launches.rich != launches.plain {
        periods.extend(verified(launches, false));
    }
    let chosen = chosen(launches, &periods)?;
    let cuts = units(launches, &chosen)?;
    let total = launches.gpu_between(0, launches.len());
    let equal = cuts.equal_share(&launches.plain);
    let is_unbroken = chosen.share >= EXACT && chosen.matched_ns >= total / 10 * 8;
    let with_event = cuts.units().filter(|(from, to)| launches.has_event(*from, *to)).count();
    // No model has so many layers in the few steps that hide as one block.
    let is_often = equal >= 0.9 && cuts.count() >= OFTEN;
    let is_step = is_unbroken || is_often || equal >= EXACT || with_event * 10 >= cuts.count() * 9;
    let repeats_ns = (cuts.gpu_ns(launches) as f64 * equal) as u64;
    is_step.then_some(Repeated { cuts, unbroken_ns: chosen.matched_ns, repeats_ns })
}

/// The units of a period, in the whole sequence.
fn units(launches: &Launches, period: &Period) -> Option<Cuts> {
    let tokens = if period.rich { &launches.rich } else { &launches.plain };
    let begin = boundary::begin(launches, tokens, period)?;
    let at = unit::walk(&launches.plain, tokens, period.lag, begin);
    let cuts = Cuts { at, source: StepSource::Period, name: None };
    (cuts.count() >= FEWEST).then_some(cuts)
}

/// The period to believe: the shortest exact one among those that cover nearly the most; one that
/// shapes, streams and waits share wins over one of names alone. Without an exact one, the block that
/// covers most.
fn chosen(launches: &Launches, periods: &[Period]) -> Option<Period> {
    let exact: Vec<_> = periods.iter().filter(|p| p.share >= EXACT).collect();
    let most = exact.iter().map(|p| p.matched_ns).max();
    if most.is_some_and(|ns| ns < launches.gpu_between(0, launches.len()) / 2) {
        return widest(launches, exact);
    }
    let covering = exact.iter().filter(|p| p.matched_ns >= most.unwrap_or(0) / 10 * 9);
    let mut covering: Vec<_> = covering.copied().collect();
    covering.sort_by_key(|p| (!p.rich, p.lag));
    let Some(shortest) = covering.first() else {
        let blocks = periods.iter().filter(|p| p.share >= 0.9);
        return blocks.max_by_key(|p| (p.matched_ns, std::cmp::Reverse(p.lag))).copied();
    };
    let whole = if Events::of(launches, shortest).any() {
        shortest
    } else {
        let mut longer = covering.iter().filter(|p| explains(launches, p, shortest));
        longer.next().unwrap_or(shortest)
    };
    Some(inner(launches, periods, whole).unwrap_or(**whole))
}

/// Of exact periods that repeat for a part of the run each, the shortest among those whose units
/// cover nearly the most of the whole run.
fn widest(launches: &Launches, mut exact: Vec<&Period>) -> Option<Period> {
    exact.sort_by_key(|p| (std::cmp::Reverse(p.matched_ns), p.lag));
    let (rich, plain): (Vec<_>, Vec<_>) = exact.into_iter().partition(|p| p.rich);
    let tried = rich.into_iter().take(INNER).chain(plain.into_iter().take(INNER));
    let covers: Vec<_> = tried.map(|p| (covered_ns(launches, p), p)).collect();
    let most = covers.iter().map(|(ns, _)| *ns).max()?;
    let covers = covers.into_iter().filter(|(ns, _)| *ns >= most / 20 * 19);
    covers.min_by_key(|(_, p)| (p.lag, !p.rich)).map(|(_, p)| *p)
}

/// The step of a loop of which `whole` is several steps and something else: the shortest among
/// those whose units cover nearly the most.
fn inner(launches: &Launches, periods: &[Period], whole: &Period) -> Option<Period> {
    let events = Events::of(launches, whole);
    let inner = periods.iter().filter(|p| p.lag <= whole.lag / 2 && p.share >= EXACT);
    let mut inner: Vec<_> = inner.filter(|p| has_events(launches, p, &events)).collect();
    inner.sort_by_key(|p| (std::cmp::Reverse(p.matched_ns), p.lag));
    inner.truncate(INNER);
    let covers = inner.into_iter().map(|p| (covered_ns(launches, p), p));
    let covers: Vec<_> = covers.filter(|(ns, _)| *ns >= whole.matched_ns / 10 * 7).collect();
    let most = covers.iter().map(|(ns, _)| *ns).max()?;
    let covers = covers.into_iter().filter(|(ns, _)| *ns >= most / 20 * 19);
    covers.min_by_key(|(_, p)| (p.lag, !p.rich)).map(|(_, p)| *p)
}

/// The GPU's time in the units of a period that are not interrupted.
fn covered_ns(launches: &Launches, period: &Period) -> u64 {
    let Some(cuts) = units(launches, period) else { return 0 };
    let whole = cuts.units().filter(|(from, to)| to - from <= period.lag + period.lag / 10);
    let times = whole.map(|(from, to)| launches.gpu_between(from, to));
    times.fold(0, u64::saturating_add)
}

/// Whether `longer` has events and matches where `shorter` breaks again and again.
fn explains(launches: &Launches, longer: &Period, shorter: &Period) -> bool {
    let covers = longer.to - longer.from >= (shorter.to - shorter.from) / 10 * 9;
    longer.lag >= shorter.lag * 2
        && covers
        && shorter.breaks >= FEWEST
        && longer.breaks <= shorter.breaks / 4
        && Events::of(launches, longer).any()
}

/// Whether a part of a period with `events` may be a step.
fn has_events(launches: &Launches, inner: &Period, events: &Events) -> bool {
    let own = Events::of(launches, inner);
    own.optimizer || (own.input && own.has_all(events))
}

/// What happens in nearly every unit of a period.
#[derive(Clone, Copy, Debug, Default)]
struct Events {
    input: bool,
    result: bool,
    optimizer: bool,
    wait: bool,
}

impl Events {
    fn of(launches: &Launches, period: &Period) -> Events {
        let count = (period.to - period.from) / period.lag.max(1);
        let every = (count / 64).max(1);
        let units = (0..count).step_by(every).map(|k| period.from + k * period.lag);
        let units: Vec<_> = units.map(|from| (from, from + period.lag)).collect();
        let most = |has: &dyn Fn(usize, usize) -> bool| {
            units.iter().filter(|(from, to)| has(*from, *to)).count() * 100 >= units.len() * 85
        };
        Events {
            input: most(&|from, to| launches.has_role(from, to, Role::Input)),
            result: most(&|from, to| launches.has_role(from, to, Role::Result)),
            optimizer: most(&|from, to| launches.has_role(from, to, Role::Optimizer)),
            wait: most(&|from, to| launches.has_wait(from, to)),
        }
    }

    fn any(&self) -> bool {
        self.input || self.result || self.optimizer || self.wait
    }

    fn has_all(&self, of: &Events) -> bool {
        (self.input || !of.input)
            && (self.result || !of.result)
            && (self.optimizer || !of.optimizer)
            && (self.wait || !of.wait)
    }
}

/// The periods of a sequence that match at least as a block does.
fn verified(launches: &Launches, rich: bool) -> Vec<Period> {
    let tokens = if rich { &launches.rich } else { &launches.plain };
    let lags = lags(tokens);
    let mut periods: Vec<Period> = Vec::new();
    periods.extend(lags.iter().flat_map(|lag| stretches(launches, tokens, *lag, rich)));
    // One level up, and one level down: the shortest lag may have been voted out by its multiples.
    let block = periods.iter().filter(|p| p.share < EXACT).max_by_key(|p| p.matched_ns);
    let exact: Vec<_> = periods.iter().filter(|p| p.share >= EXACT).collect();
    let most = exact.iter().map(|p| p.matched_ns).max().unwrap_or(0);
    let shortest = exact.iter().filter(|p| p.matched_ns >= most / 10 * 9).min_by_key(|p| p.lag);
    let breaking = block.into_iter().chain(shortest.copied());
    let mut more: Vec<usize> = breaking.flat_map(|p| lags_of_breaks(tokens, p)).collect();
    more.extend(shortest.iter().flat_map(|p| divisors(p.lag)));
    more.retain(|lag| !lags.contains(lag));
    more.sort_unstable();
    more.dedup();
    periods.extend(more.iter().flat_map(|lag| stretches(launches, tokens, *lag, rich)));
    periods.retain(|p| p.share >= BLOCK);
    periods
}

/// Some divisors of a lag: the lag by each of the first numbers.
fn divisors(lag: usize) -> Vec<usize> {
    (2..=32).filter(|n| lag.is_multiple_of(*n) && lag / n > 0).map(|n| lag / n).collect()
}

/// The stretches in which a lag repeats often enough, with breaks and without.
fn stretches(launches: &Launches, tokens: &[u32], lag: usize, rich: bool) -> Vec<Period> {
    let Some(later) = tokens.get(lag..).filter(|_| lag > 0) else { return Vec::new() };
    if !may_repeat(tokens, later) {
        return Vec::new();
    }
    let mut best = MISMATCHES.map(Scored::new);
    for (at, (a, b)) in tokens.iter().zip(later).enumerate() {
        for scored in &mut best {
            scored.add(at, a == b);
        }
    }
    let [loose, strict] = best;
    let mut found: Vec<Period> = loose.period(launches, tokens, lag, rich).into_iter().collect();
    if (strict.from, strict.end) != (loose.from, loose.end) {
        found.extend(strict.period(launches, tokens, lag, rich));
    }
    found
}

/// Whether at least a few of some positions all over the sequence match: a look that is quicker
/// than the whole comparison.
fn may_repeat(tokens: &[u32], later: &[u32]) -> bool {
    let every = later.len() / SAMPLED;
    if every < 8 {
        return true;
    }
    let pairs = tokens.iter().zip(later).step_by(every);
    pairs.filter(|(a, b)| a == b).count() * 20 >= SAMPLED
}

/// The positions `from..end` whose score is highest so far.
struct Scored {
    mismatch: i64,
    best: i64,
    from: usize,
    end: usize,
    /// Of the positions that are looked at.
    score: i64,
    begin: usize,
}

impl Scored {
    fn new(mismatch: i64) -> Scored {
        Scored { mismatch, best: 0, from: 0, end: 0, score: 0, begin: 0 }
    }

    fn add(&mut self, at: usize, matches: bool) {
        self.score += if matches { 1 } else { -self.mismatch };
        if self.score <= 0 {
            self.score = 0;
            self.begin = at + 1;
        } else if self.score > self.best {
            (self.best, self.from, self.end) = (self.score, self.begin, at + 1);
        }
    }

    fn period(
        &self,
        launches: &Launches,
        tokens: &[u32],
        lag: usize,
        rich: bool,
    ) -> Option<Period> {
        let Scored { from, end, .. } = *self;
        let length = end - from;
        if length < lag.saturating_mul(FEWEST - 1) || length + lag < FEWEST {
            return None;
        }
        let pairs = tokens.get(from..end)?.iter().zip(tokens.get(from + lag..)?);
        let (mut matches, mut matched_ns) = (0_usize, 0_u64);
        for (at, _) in (from..).zip(pairs).filter(|(_, (a, b))| a == b) {
            matches += 1;
            matched_ns = matched_ns.saturating_add(launches.gpu_between(at, at + 1));
        }
        // The last repetition has nothing after it to match; it counts as the others.
        let share = matches as f64 / length as f64;
        let tail = launches.gpu_between(end, end + lag) as f64 * share;
        let matched_ns = matched_ns.saturating_add(tail as u64);
        Some(Period { lag, from, to: end + lag, share, breaks: length - matches, matched_ns, rich })
    }
}

/// Lags worth comparing: the usual distances from a token to its next occurrences.
fn lags(tokens: &[u32]) -> Vec<usize> {
    let places = Places::new(tokens);
    let mut votes: HashMap<usize, usize> = HashMap::new();
    for token in places.rare() {
        let at = places.of(token);
        for step in 1..=OCCURRENCES.min(at.len() / FEWEST) {
            let count = at.len() - step;
            let every = count.div_ceil(DISTANCES).max(1);
            let pairs = at.iter().zip(at.iter().skip(step)).step_by(every);
            let distances = pairs.map(|(a, b)| (*b as usize).saturating_sub(*a as usize));
            if let Some((lag, weight)) = usual(distances.collect()) {
                *votes.entry(lag).or_default() += weight;
            }
        }
    }
    let limit = tokens.len() / FEWEST;
    let mut lags: Vec<usize> = (1..=SMALL_LAGS.min(limit)).collect();
    let mut voted: Vec<_> = votes.into_iter().filter(|(lag, _)| *lag <= limit).collect();
    voted.sort_unstable_by_key(|(lag, weight)| (std::cmp::Reverse(*weight), *lag));
    let voted = voted.into_iter().map(|(lag, _)| lag).filter(|lag| *lag > SMALL_LAGS);
    lags.extend(voted.take(LAGS));
    lags
}

/// Lags from the places at which a block breaks: one level up, they repeat too.
fn lags_of_breaks(tokens: &[u32], block: &Period) -> Vec<usize> {
    let differs = |at: &usize| tokens.get(*at) != tokens.get(*at + block.lag);
    let breaks = (block.from..block.to - block.lag).filter(differs);
    let mut last = None;
    let mut begins: Vec<u32> = Vec::new();
    for at in breaks {
        let follows = last.is_some_and(|last| at - last <= block.lag);
        last = Some(at);
        if !follows {
            begins.extend(u32::try_from(at));
        }
    }
    let mut lags = Vec::new();
    for step in 1..=8.min(begins.len() / FEWEST) {
        let pairs = begins.iter().zip(begins.iter().skip(step));
        let distances = pairs.map(|(a, b)| (b - a) as usize).take(DISTANCES);
        lags.extend(usual(distances.collect()).map(|(lag, _)| lag));
    }
    lags.retain(|lag| *lag > SMALL_LAGS && *lag <= tokens.len() / FEWEST);
    lags.dedup();
    lags
}

/// The most frequent of some distances, if at least half are equal, with its count.
fn usual(mut distances: Vec<usize>) -> Option<(usize, usize)> {
    distances.sort_unstable();
    let runs = distances.chunk_by(|a, b| a == b);
    let longest = runs.max_by_key(|run| run.len())?;
    (longest.len() * 2 >= distances.len()).then_some((*longest.first()?, longest.len()))
}

/// The positions of each token.
struct Places {
    /// Begin of each token's positions in `at`; one more than there are tokens.
    begin: Vec<usize>,
    at: Vec<u32>,
}

impl Places {
    fn new(tokens: &[u32]) -> Places {
        let kinds = tokens.iter().max().map_or(0, |most| *most as usize + 1);
        let mut begin = vec![0; kinds + 1];
        for token in tokens {
            if let Some(count) = begin.get_mut(*token as usize + 1) {
                *count += 1;
            }
        }
        let mut sum = 0;
        for count in &mut begin {
            sum += *count;
            *count = sum;
        }
        let mut next = begin.clone();
        let mut at = vec![0; tokens.len()];
        for (position, token) in (0_u32..).zip(tokens) {
            if let Some(next) = next.get_mut(*token as usize) {
                if let Some(place) = at.get_mut(*next) {
                    *place = position;
                }
                *next += 1;
            }
        }
        Places { begin, at }
    }

    /// The positions of a token, rising.
    fn of(&self, token: usize) -> &[u32] {
        match (self.begin.get(token), self.begin.get(token + 1)) {
            (Some(from), Some(to)) => self.at.get(*from..*to).unwrap_or_default(),
            _ => &[],
        }
    }

    /// The rarest tokens that come at least three times: some of those that lie all over the
    /// sequence, and some of the others.
    fn rare(&self) -> Vec<usize> {
        let kinds = self.begin.len().saturating_sub(1);
        let mut often: Vec<_> = (0..kinds).filter(|t| self.of(*t).len() >= FEWEST).collect();
        often.sort_by_key(|token| self.of(*token).len());
        let spread = |token: &usize| match (self.of(*token).first(), self.of(*token).last()) {
            (Some(first), Some(last)) => (last - first) as usize >= self.at.len() / 4,
            _ => false,
        };
        let (wide, narrow): (Vec<_>, Vec<_>) = often.into_iter().partition(spread);
        wide.into_iter().take(TOKENS).chain(narrow.into_iter().take(TOKENS)).collect()
    }
}
