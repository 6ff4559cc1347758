//! Ranges of whole numbers whose bounds are polynomials of the sizes.

use super::polynomial::Polynomial;

/// From `lo` to `hi`, both included; `None` is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) lo: Option<Polynomial>,
    pub(super) hi: Option<Polynomial>,
}

impl Range {
    pub(super) fn exact(value: Polynomial) -> Self {
        Self { lo: Some(value.clone()), hi: Some(value) }
    }

    pub(super) fn number(value: i64) -> Self {
        Self::exact(Polynomial::number(value))
    }

    pub(super) fn between(lo: i64, hi: i64) -> Self {
        Self { lo: Some(Polynomial::number(lo)), hi: Some(Polynomial::number(hi)) }
    }

    /// The indexes of `count` things: 0 to `count - 1`.
    pub(super) fn below(count: &Polynomial) -> Self {
        Self { lo: Some(Polynomial::number(0)), hi: count.plus(-1) }
    }

    pub(super) fn as_exact(&self) -> Option<&Polynomial> {
        self.lo.as_ref().filter(|lo| self.hi.as_ref() == Some(*lo))
    }

    pub(super) fn as_number(&self) -> Option<i64> {
        self.as_exact()?.as_number()
    }

    pub(super) fn is_never_negative(&self) -> bool {
        self.lo.as_ref().is_some_and(Polynomial::is_never_negative)
    }

    /// As [`Self::is_never_negative`], where `w - k + 1` counts as a length.
    pub(super) fn is_likely_positive(&self) -> bool {
        self.lo.as_ref().is_some_and(Polynomial::is_likely_positive)
    }

    pub(super) fn add(&self, other: &Self) -> Self {
        Self {
            lo: both(&self.lo, &other.lo, Polynomial::add),
            hi: both(&self.hi, &other.hi, Polynomial::add),
        }
    }

    pub(super) fn subtract(&self, other: &Self) -> Self {
        Self {
            lo: both(&self.lo, &other.hi, Polynomial::subtract),
            hi: both(&self.hi, &other.lo, Polynomial::subtract),
        }
    }

    pub(super) fn multiply(&self, other: &Self) -> Self {
        if let (Some(left), Some(right)) = (self.as_exact(), other.as_exact()) {
            return left.multiply(right).map(Self::exact).unwrap_or_default();
        }
        if self.is_likely_positive() && other.is_likely_positive() {
            return Self {
                lo: both(&self.lo, &other.lo, Polynomial::multiply),
                hi: both(&self.hi, &other.hi, Polynomial::multiply),
            };
        }
        // A range that may be negative keeps its order when it is multiplied by a number.
        let (range, factor) = match (self.as_number(), other.as_number()) {
            (Some(factor), _) => (other, factor),
            (_, Some(factor)) => (self, factor),
            _ if other.is_never_negative() => {
                let hi = both(&self.hi, &other.hi, Polynomial::multiply);
                return Self { lo: both(&self.lo, &other.hi, Polynomial::multiply), hi };
            }
            _ if self.is_never_negative() => return other.multiply(self),
            _ => return Self::default(),
        };
        let scaled = |bound: &Option<Polynomial>| bound.as_ref().and_then(|b| b.times(factor));
        let (lo, hi) = (scaled(&range.lo), scaled(&range.hi));
        if factor < 0 { Self { lo: hi, hi: lo } } else { Self { lo, hi } }
    }

    pub(super) fn divide(&self, other: &Self) -> Self {
        if !self.is_never_negative() || !is_positive(other) {
            return Self::default();
        }
        Self {
            lo: both(&self.lo, &other.hi, Polynomial::divide_down)
                .filter(|_| other.hi.is_some())
                .or_else(|| Some(Polynomial::number(0))),
            hi: both(&self.hi, &other.lo, Polynomial::divide_down),
        }
    }

    pub(super) fn divide_up(&self, other: &Self) -> Self {
        if !self.is_never_negative() || !is_positive(other) {
            return Self::default();
        }
        Self {
            lo: both(&self.lo, &other.hi, Polynomial::divide_up),
            hi: both(&self.hi, &other.lo, Polynomial::divide_up),
        }
    }

    pub(super) fn remainder(&self, other: &Self) -> Self {
        if !is_positive(other) {
            return Self::default();
        }
        if let (Some(left), Some(right)) = (self.as_exact(), other.as_exact())
            && left.is_never_negative()
        {
            // A value that is smaller already stays as it is.
            if right.plus(-1).is_some_and(|last| left.is_at_most(&last)) {
                return self.clone();
            }
            return left.remainder(right).map(Self::exact).unwrap_or_default();
        }
        let last = other.hi.as_ref().and_then(|hi| hi.plus(-1));
        if !self.is_never_negative() {
            let lo = last.as_ref().and_then(|last| last.times(-1));
            return Self { lo, hi: last };
        }
        let hi = match (&self.hi, last) {
            (Some(own), Some(last)) if own.is_at_most(&last) => Some(own.clone()),
            (_, last) => last,
        };
        Self { lo: Some(Polynomial::number(0)), hi }
    }

    pub(super) fn smaller(&self, other: &Self) -> Self {
        let hi = match (&self.hi, &other.hi) {
            (Some(left), Some(right)) => left.smaller(right).or_else(|| Some(left.clone())),
            (one, other) => one.clone().or_else(|| other.clone()),
        };
        Self { lo: both(&self.lo, &other.lo, Polynomial::smaller), hi }
    }

    pub(super) fn larger(&self, other: &Self) -> Self {
        let lo = match (&self.lo, &other.lo) {
            (Some(left), Some(right)) => left.larger(right).or_else(|| Some(left.clone())),
            (one, other) => one.clone().or_else(|| other.clone()),
        };
        Self { lo, hi: both(&self.hi, &other.hi, Polynomial::larger) }
    }

    /// The range of a value that is in one of two.
    pub(super) fn join(&self, other: &Self) -> Self {
        Self {
            lo: both(&self.lo, &other.lo, |left, right| {
                left.smaller(right).filter(|found| found == left || found == right)
            }),
            hi: both(&self.hi, &other.hi, Polynomial::larger),
        }
    }

    /// The range with what a condition says: at least `lo`, at most `hi`. A bound that is known to
    /// be tighter stays.
    pub(super) fn narrowed(&self, lo: Option<Polynomial>, hi: Option<Polynomial>) -> Self {
        let lo = match (&self.lo, lo) {
            (Some(own), Some(new)) if new.is_at_most(own) => Some(own.clone()),
            (own, new) => new.or_else(|| own.clone()),
        };
        let hi = match (&self.hi, hi) {
            (Some(own), Some(new)) if own.is_at_most(&new) => Some(own.clone()),
            (own, new) => new.or_else(|| own.clone()),
        };
        Self { lo, hi }
    }
}

fn is_positive(range: &Range) -> bool {
    let lo = range.lo.as_ref().and_then(|lo| lo.plus(-1));
    lo.is_some_and(|lo| lo.is_never_negative())
}

fn both(
    left: &Option<Polynomial>,
    right: &Option<Polynomial>,
    combine: impl Fn(&Polynomial, &Polynomial) -> Option<Polynomial>,
) -> Option<Polynomial> {
    combine(left.as_ref()?, right.as_ref()?)
}
