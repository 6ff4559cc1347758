//! What a condition says about its operands, in the branch where it holds.

use super::machine::{Machine, Value};
use super::polynomial::Polynomial;
use super::range::Range;
use super::tree::Expression;

impl Machine<'_> {
    /// Narrows ranges by a condition that is `holds`.
    pub(super) fn narrow(&mut self, condition: &Expression, holds: bool) {
        let Expression::Binary(operator, left, right) = condition else {
            if let Expression::Unary("!", inner) = condition {
                self.narrow(inner, !holds);
            }
            return;
        };
        match (*operator, holds) {
            ("&&", true) | ("||", false) => {
                self.narrow(left, holds);
                self.narrow(right, holds);
            }
            ("<", true) | (">=", false) => self.narrow_order(left, right, -1),
            ("<=", true) | (">", false) => self.narrow_order(left, right, 0),
            (">", true) | ("<=", false) => self.narrow_order(right, left, -1),
            (">=", true) | ("<", false) => self.narrow_order(right, left, 0),
            ("==", true) | ("!=", false) => {
                self.narrow_order(left, right, 0);
                self.narrow_order(right, left, 0);
            }
            _ => {}
        }
    }

    /// `small` is at most `large + distance`.
    fn narrow_order(&mut self, small: &Expression, large: &Expression, distance: i64) {
        let (below, above) = (self.range_of(small), self.range_of(large));
        if let (Some(left), Some(right)) = (&below.lo, &above.hi)
            && self.compared.len() < 256
        {
            self.compared.push((left.clone(), right.clone()));
        }
        let hi = above.hi.as_ref().and_then(|hi| hi.plus(distance));
        let lo = below.lo.as_ref().and_then(|lo| lo.plus(distance.saturating_neg()));
        self.bound(small, None, hi);
        self.bound(large, lo, None);
    }

    fn bound(&mut self, expression: &Expression, lo: Option<Polynomial>, hi: Option<Polynomial>) {
        if lo.is_none() && hi.is_none() {
            return;
        }
        match expression {
            Expression::Name(name) => {
                let range = match self.variables.get(&**name) {
                    Some(Value::Int(range)) => range.clone(),
                    _ => Range::default(),
                };
                // What is exact stays exact: it is a size, or a number.
                if range.as_exact().is_none() {
                    self.variables.insert(name.to_string(), Value::Int(range.narrowed(lo, hi)));
                }
            }
            Expression::Cast(_, inner) => self.bound(inner, lo, hi),
            Expression::Number(_) | Expression::Other => {}
            _ => {
                let range = self.range_of(expression);
                if range.as_exact().is_some() {
                    return;
                }
                if let Expression::Binary("+", left, right) = expression {
                    // `i + j <= b` bounds both by `b` less the least of the other.
                    let (a, b) = (self.range_of(left), self.range_of(right));
                    for (part, other) in [(left, b), (right, a)] {
                        let hi = hi.as_ref().zip(other.lo.as_ref());
                        let hi = hi.and_then(|(hi, lo)| hi.subtract(lo));
                        if matches!(**part, Expression::Name(_)) {
                            self.bound(part, None, hi);
                        }
                    }
                }
                self.facts.insert(expression.text(), range.narrowed(lo, hi));
            }
        }
    }
}
