//! Walks from unit to unit.

/// The part of a unit's places that must be equal.
const EQUAL: f64 = 0.9;
/// The first places of a unit that must be equal before all are compared.
const HEAD: usize = 6;

/// The begin of each unit, and the end of the last: from the unit that begins at `begin` to both
/// sides. The next unit is expected `lag` later; where it is not, the next place that equals the
/// unit is searched for, so that what was put in between belongs to the unit before. The number of
/// comparisons is bounded.
///
/// Where a unit is expected, `plain` must be equal, so that a single wait breaks nothing; where one
/// is searched for, `tokens` must.
pub(super) fn walk(plain: &[u32], tokens: &[u32], lag: usize, begin: usize) -> Vec<usize> {
    let range = begin..begin.saturating_add(lag);
    let (Some(usual), Some(unit)) = (plain.get(range.clone()), tokens.get(range)) else {
        return Vec::new();
    };
    if lag == 0 {
        return Vec::new();
    }
    let left = tokens.len().saturating_mul(40).saturating_add(1_000_000);
    let mut walker = Walker { plain, usual, tokens, unit, left };
    let mut at = vec![begin];
    let mut here = begin;
    while let Some(before) = walker.before(here) {
        at.push(before);
        here = before;
    }
    at.reverse();
    here = begin;
    while let Some(after) = walker.after(here) {
        at.push(after);
        here = after;
    }
    at.push(here + lag);
    at
}

struct Walker<'t> {
    plain: &'t [u32],
    /// The unit in `plain`.
    usual: &'t [u32],
    tokens: &'t [u32],
    /// The unit in `tokens`.
    unit: &'t [u32],
    /// Comparisons that are left.
    left: usize,
}

impl Walker<'_> {
    /// The unit before the one that begins at `here`.
    fn before(&mut self, here: usize) -> Option<usize> {
        let last = here.checked_sub(self.unit.len())?;
        if self.equals(self.plain, self.usual, last) {
            return Some(last);
        }
        (0..last).rev().find(|at| self.is_begin(*at))
    }

    /// The unit after the one that begins at `here`.
    fn after(&mut self, here: usize) -> Option<usize> {
        let first = here + self.unit.len();
        if self.equals(self.plain, self.usual, first) {
            return Some(first);
        }
        // A unit may lack some launches.
        let soonest = here + (self.unit.len() - self.unit.len() / 10).max(1);
        let last = (self.tokens.len() + 1).checked_sub(self.unit.len())?;
        (soonest..last).find(|at| self.is_begin(*at))
    }

    /// Whether a unit begins here, and with the same launches.
    fn is_begin(&mut self, at: usize) -> bool {
        self.left = self.left.saturating_sub(1);
        let head = self.unit.get(..HEAD.min(self.unit.len())).unwrap_or_default();
        self.tokens.get(at..).is_some_and(|rest| rest.starts_with(head))
            && self.equals(self.tokens, self.unit, at)
    }

    /// Whether nearly all places from `at` on equal the unit.
    fn equals(&mut self, tokens: &[u32], unit: &[u32], at: usize) -> bool {
        let end = at.saturating_add(unit.len());
        let Some(here) = tokens.get(at..end).filter(|_| self.left > 0) else { return false };
        let allowed = ((1.0 - EQUAL) * unit.len() as f64) as usize;
        let (mut differing, mut compared) = (0, 0);
        for (a, b) in here.iter().zip(unit) {
            compared += 1;
            if a != b {
                differing += 1;
                if differing > allowed {
                    break;
                }
            }
        }
        self.left = self.left.saturating_sub(compared);
        differing <= allowed
    }
}
