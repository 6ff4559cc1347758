//! Polynomials with whole coefficients over the sizes of a problem. Extents and bounds of indexes
//! are such polynomials: `(m - 1) * k + k - 1` becomes `m * k - 1`.

use std::collections::BTreeMap;
use std::rc::Rc;

/// More terms than this are not worth it.
const MAX_TERMS: usize = 48;

/// A size variable, or an expression that is taken as a whole: `ceil_div(n, 256)`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::kernel) struct Atom {
    pub(super) text: Rc<str>,
    /// The least value that it may have: 1 for a size variable.
    pub(super) least: i64,
}

/// A sum of products.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::kernel) struct Polynomial {
    /// The factors of each term, sorted, and its coefficient, which is not 0.
    terms: BTreeMap<Vec<Atom>, i64>,
}

impl Polynomial {
    pub(super) fn number(value: i64) -> Self {
        let mut polynomial = Self::default();
        if value != 0 {
            polynomial.terms.insert(Vec::new(), value);
        }
        polynomial
    }

    /// A size variable, which is at least 1.
    pub(super) fn variable(name: &str) -> Self {
        Self::atom(name, 1)
    }

    /// An index, which is at least 0.
    pub(super) fn index(name: &str) -> Self {
        Self::atom(name, 0)
    }

    fn atom(text: &str, least: i64) -> Self {
        let atom = Atom { text: text.into(), least };
        Self { terms: BTreeMap::from([(vec![atom], 1)]) }
    }

    pub(super) fn as_number(&self) -> Option<i64> {
        match self.terms.len() {
            0 => Some(0),
            1 => self.terms.get(&Vec::new()).copied(),
            _ => None,
        }
    }

    /// The name of the variable if it is one and nothing else.
    pub(super) fn as_variable(&self) -> Option<&str> {
        match self.terms.iter().next() {
            Some((factors, 1)) if self.terms.len() == 1 && factors.len() == 1 => {
                factors.first().map(|atom| &*atom.text)
            }
            _ => None,
        }
    }

    pub(super) fn add(&self, other: &Self) -> Option<Self> {
        self.combine(other, 1)
    }

    pub(super) fn subtract(&self, other: &Self) -> Option<Self> {
        self.combine(other, -1)
    }

    fn combine(&self, other: &Self, sign: i64) -> Option<Self> {
        let mut sum = self.clone();
        for (factors, coefficient) in &other.terms {
            sum.add_term(factors.clone(), coefficient.checked_mul(sign)?)?;
        }
        (sum.terms.len() <= MAX_TERMS).then_some(sum)
    }

    fn add_term(&mut self, factors: Vec<Atom>, coefficient: i64) -> Option<()> {
        let slot = self.terms.entry(factors.clone()).or_insert(0);
        *slot = slot.checked_add(coefficient)?;
        if *slot == 0 {
            self.terms.remove(&factors);
        }
        Some(())
    }

    pub(super) fn multiply(&self, other: &Self) -> Option<Self> {
        if self.terms.len().checked_mul(other.terms.len())? > 4 * MAX_TERMS {
            return None;
        }
        let mut product = Self::default();
        for (left, a) in &self.terms {
            for (right, b) in &other.terms {
                let mut factors = [left.as_slice(), right.as_slice()].concat();
                factors.sort();
                product.add_term(factors, a.checked_mul(*b)?)?;
            }
        }
        let degree = product.terms.keys().map(Vec::len).max().unwrap_or_default();
        (product.terms.len() <= MAX_TERMS && degree <= 8).then_some(product)
    }

    pub(super) fn plus(&self, number: i64) -> Option<Self> {
        self.add(&Self::number(number))
    }

    pub(super) fn times(&self, number: i64) -> Option<Self> {
        self.multiply(&Self::number(number))
    }

    /// Whether it is at least 0 for all sizes. `false` also if that is not known.
    ///
    /// Each atom is replaced with its least value and a rest that is at least 0: if no coefficient
    /// is below 0 then, neither is the value.
    pub(super) fn is_never_negative(&self) -> bool {
        self.shifted().is_some_and(|shifted| shifted.terms.values().all(|value| *value >= 0))
    }

    fn shifted(&self) -> Option<Self> {
        let mut total = Self::default();
        for (factors, coefficient) in &self.terms {
            let mut product = Self::number(*coefficient);
            for factor in factors {
                let rest = Self::atom(&factor.text, 0).plus(factor.least)?;
                product = product.multiply(&rest)?;
            }
            total = total.add(&product)?;
        }
        Some(total)
    }

    /// Whether it is at most `other` for all sizes; `false` also if that is not known.
    pub(super) fn is_at_most(&self, other: &Self) -> bool {
        other.subtract(self).is_some_and(|rest| rest.is_never_negative())
    }

    /// The quotient, if the division has no remainder for any sizes.
    pub(super) fn divide_exactly(&self, divisor: &Self) -> Option<Self> {
        let (factors, coefficient) = divisor.terms.iter().next()?;
        if divisor.terms.len() != 1 {
            return (self == divisor).then(|| Self::number(1));
        }
        let mut quotient = Self::default();
        for (own, value) in &self.terms {
            let mut left = own.clone();
            for factor in factors {
                let at = left.iter().position(|atom| atom == factor)?;
                left.remove(at);
            }
            if value.checked_rem(*coefficient)? != 0 {
                return None;
            }
            quotient.add_term(left, value.checked_div(*coefficient)?)?;
        }
        Some(quotient)
    }

    /// The whole number that is not above the quotient; both must be at least 0.
    pub(super) fn divide_down(&self, divisor: &Self) -> Option<Self> {
        if let (Some(value), Some(by)) = (self.as_number(), divisor.as_number()) {
            return value.checked_div_euclid(by).map(Self::number);
        }
        if let Some(exact) = self.divide_exactly(divisor) {
            return Some(exact);
        }
        // `(n + 255) / 256` is `ceil_div(n, 256)`.
        let rest = self.subtract(divisor)?.plus(1)?;
        if rest.is_never_negative() && !rest.mentions("@") {
            return rest.divide_up(divisor);
        }
        // `(256 * b + t) / 32` is `8 * b + t / 32`.
        let (whole, part) = self.split_by(divisor)?;
        if whole != Self::default() && part.is_never_negative() {
            return whole.add(&part.divide_down(divisor)?);
        }
        // `n * w - 1` divided by `w` is `n - 1`.
        if let Some(up) = self.plus(1)?.divide_exactly(divisor) {
            return up.plus(-1);
        }
        let (text, by) = (self.text(), divisor.text());
        Some(Self::atom(&format!("(({text}) - ({text}) % ({by})) / ({by})"), 0))
    }

    /// The whole number that is not below the quotient; both must be at least 0.
    pub(super) fn divide_up(&self, divisor: &Self) -> Option<Self> {
        if let Some(exact) = self.divide_exactly(divisor) {
            return Some(exact);
        }
        if let (Some(value), Some(by)) = (self.as_number(), divisor.as_number()) {
            let up = value.checked_add(by)?.checked_sub(1)?.checked_div_euclid(by)?;
            return Some(Self::number(up));
        }
        let least = i64::from(self.plus(-1)?.is_never_negative());
        Some(Self::atom(&format!("ceil_div({}, {})", self.text(), divisor.text()), least))
    }

    /// The rest of a division, for numbers that are at least 0.
    pub(super) fn remainder(&self, divisor: &Self) -> Option<Self> {
        if let (Some(value), Some(by)) = (self.as_number(), divisor.as_number()) {
            return value.checked_rem_euclid(by).map(Self::number);
        }
        let (whole, part) = self.split_by(divisor)?;
        if whole != Self::default() && part.is_never_negative() {
            return part.remainder(divisor);
        }
        Some(Self::atom(&format!("({}) % ({})", self.text(), divisor.text()), 0))
    }

    /// The quotient of the terms that the divisor divides, and the other terms.
    fn split_by(&self, divisor: &Self) -> Option<(Self, Self)> {
        let (mut whole, mut part) = (Self::default(), Self::default());
        for (factors, value) in &self.terms {
            let term = Self { terms: BTreeMap::from([(factors.clone(), *value)]) };
            match term.divide_exactly(divisor) {
                Some(quotient) => whole = whole.add(&quotient)?,
                None => part = part.add(&term)?,
            }
        }
        Some((whole, part))
    }

    /// Whether it may be taken as at least 0: it is, or a size is added in it, as in `w - k + 1`.
    pub(super) fn is_likely_positive(&self) -> bool {
        let mut sizes = self.terms.iter().filter(|(factors, _)| !factors.is_empty());
        self.is_never_negative() || sizes.any(|(_, value)| *value > 0)
    }

    /// The coefficient, if it is a single product.
    pub(super) fn only_coefficient(&self) -> Option<i64> {
        self.terms.values().next().copied().filter(|_| self.terms.len() == 1)
    }

    /// Whether it grows with the size `name`, other than as the divisor of a quotient, or divided by
    /// as many threads as a grid has.
    pub(super) fn grows_with(&self, name: &str) -> bool {
        self.terms.keys().flatten().any(|atom| {
            let text = match atom.text.strip_prefix("ceil_div(") {
                Some(inside) => match inside.rsplit_once(", ") {
                    Some((dividend, divisor)) if is_below(divisor, 2048) => dividend,
                    _ => return false,
                },
                None => &atom.text,
            };
            holds_word(text, name)
        })
    }

    /// The larger of two.
    pub(super) fn larger(&self, other: &Self) -> Option<Self> {
        self.choose(other, "max")
    }

    /// The smaller of two.
    pub(super) fn smaller(&self, other: &Self) -> Option<Self> {
        self.choose(other, "min")
    }

    fn choose(&self, other: &Self, function: &str) -> Option<Self> {
        let is_max = function == "max";
        if self.is_at_most(other) {
            return Some(if is_max { other.clone() } else { self.clone() });
        }
        if other.is_at_most(self) {
            return Some(if is_max { self.clone() } else { other.clone() });
        }
        if !self.is_never_negative() && !other.is_never_negative() {
            return None;
        }
        let text = format!("{function}({}, {})", self.text(), other.text());
        (text.len() < 400).then(|| Self::atom(&text, 0))
    }

    /// The factor of `variable` in the terms that hold it once; `None` if it occurs otherwise.
    pub(super) fn coefficient(&self, variable: &str) -> Option<Self> {
        let mut coefficient = Self::default();
        for (factors, value) in &self.terms {
            let count = factors.iter().filter(|atom| &*atom.text == variable).count();
            let inside = factors.iter().any(|a| &*a.text != variable && a.text.contains(variable));
            if count > 1 || inside {
                return None;
            }
            if count == 1 {
                let rest = factors.iter().filter(|atom| &*atom.text != variable).cloned();
                coefficient.add_term(rest.collect(), *value)?;
            }
        }
        Some(coefficient)
    }

    /// The names of its variables, also inside functions.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for atom in self.terms.keys().flatten() {
            let words = atom.text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '@');
            for word in words.filter(|word| word.starts_with(|c: char| !c.is_ascii_digit())) {
                let is_function = matches!(word, "ceil_div" | "min" | "max");
                if !is_function && !names.iter().any(|name| name == word) {
                    names.push(word.to_owned());
                }
            }
        }
        names
    }

    /// Whether the text of `name` is part of it.
    pub(super) fn mentions(&self, name: &str) -> bool {
        self.terms.keys().flatten().any(|atom| atom.text.contains(name))
    }

    /// The largest number of factors of a term.
    pub(super) fn degree(&self) -> usize {
        self.terms.keys().map(Vec::len).max().unwrap_or_default()
    }

    /// The largest number of sizes that are multiplied in a term with `name`. A function of a product
    /// counts as two.
    pub(super) fn degree_with(&self, name: &str) -> usize {
        let with = |factors: &&Vec<Atom>| factors.iter().any(|atom| holds_word(&atom.text, name));
        let degree_of = |factors: &Vec<Atom>| {
            factors.iter().map(|atom| 1 + usize::from(holds_product(&atom.text))).sum()
        };
        self.terms.keys().filter(with).map(degree_of).max().unwrap_or_default()
    }

    /// It as an expression of kernel.toml, with the terms of the highest degree first.
    pub(in crate::kernel) fn text(&self) -> String {
        let mut terms: Vec<(&Vec<Atom>, &i64)> = self.terms.iter().collect();
        terms.sort_by_key(|(factors, value)| {
            (std::cmp::Reverse(factors.len()), **value < 0, (*factors).clone())
        });
        let mut text = String::new();
        for (factors, value) in terms {
            let size = value.unsigned_abs();
            let mut parts: Vec<String> = Vec::new();
            if size != 1 || factors.is_empty() {
                parts.push(size.to_string());
            }
            parts.extend(factors.iter().map(|atom| atom.factor_text()));
            let sign = match (text.is_empty(), *value < 0) {
                (true, false) => "",
                (true, true) => "-",
                (false, false) => " + ",
                (false, true) => " - ",
            };
            text.push_str(sign);
            text.push_str(&parts.join(" * "));
        }
        if text.is_empty() { "0".to_owned() } else { text }
    }
}

impl Atom {
    /// Its text, in parentheses unless it is a name or a call.
    fn factor_text(&self) -> String {
        let is_call = self.text.ends_with(')')
            && ["ceil_div(", "min(", "max("].iter().any(|begin| self.text.starts_with(begin));
        if is_call || crate::kernel::is_identifier(&self.text) {
            self.text.to_string()
        } else {
            format!("({})", self.text)
        }
    }
}

/// Whether a text that may end with a bracket is a number below `limit`.
fn is_below(text: &str, limit: i64) -> bool {
    text.trim_end_matches(')').parse().is_ok_and(|number: i64| number < limit)
}

/// Whether a size is multiplied by another one in `text`.
fn holds_product(text: &str) -> bool {
    let is_name = |word: &str| word.starts_with(|c: char| c.is_alphabetic());
    text.match_indices(" * ").any(|(at, sign)| {
        let before = text.get(..at).and_then(|text| text.rsplit([' ', '(']).next());
        is_name(before.unwrap_or_default())
            && is_name(text.get(at + sign.len()..).unwrap_or_default())
    })
}

/// Whether the identifier `name` is in `text`.
fn holds_word(text: &str, name: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
}

#[cfg(test)]
mod tests {
    use super::Polynomial;

    fn variable(name: &str) -> Polynomial {
        Polynomial::variable(name)
    }

    #[test]
    fn extents_of_matrices_are_products() {
        let (m, k) = (variable("m"), variable("k"));
        let last = m.plus(-1).unwrap().multiply(&k).unwrap().add(&k).unwrap().plus(-1).unwrap();
        assert_eq!(last.plus(1).unwrap().text(), "k * m");
        assert!(last.is_never_negative() && !m.plus(-2).unwrap().is_never_negative());
        assert!(k.plus(-1).unwrap().is_at_most(&m.multiply(&k).unwrap()));
        assert!(!k.is_at_most(&m));
    }

    #[test]
    fn quotients_are_rounded_as_the_language_does() {
        let n = variable("n");
        let by = Polynomial::number(256);
        let blocks = n.plus(255).unwrap().divide_down(&by).unwrap();
        assert_eq!(blocks.text(), "ceil_div(n, 256)");
        assert_eq!(n.divide_down(&by).unwrap().text(), "(((n) - (n) % (256)) / (256))");
        let w = variable("w");
        let last = n.multiply(&w).unwrap().plus(-1).unwrap();
        assert_eq!(last.divide_down(&w).unwrap().text(), "n - 1");
        assert_eq!(n.times(6).unwrap().divide_exactly(&Polynomial::number(4)), None);
        assert_eq!(n.divide_exactly(&Polynomial::default()), None);
    }

    #[test]
    fn numbers_that_do_not_fit_are_no_polynomial() {
        let large = Polynomial::number(i64::MAX);
        assert_eq!(large.plus(1), None);
        assert_eq!(large.multiply(&large), None);
        assert_eq!(Polynomial::number(7).divide_down(&Polynomial::default()), None);
    }
}
