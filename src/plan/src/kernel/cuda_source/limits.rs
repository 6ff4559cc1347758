//! What sizes may be at most, so that the kernel's own arrays hold what they index.

use std::rc::Rc;

use super::machine::Machine;
use super::polynomial::Polynomial;
use super::tree::Expression;

/// A size is an index, or bounds one, of an array with a fixed number of elements.
#[derive(Clone, Debug)]
pub(super) struct SizeLimit {
    pub(super) size: String,
    pub(super) most: i64,
    pub(super) array: Rc<str>,
    pub(super) line: u32,
}

impl Machine<'_> {
    /// Notes what a size may be at most if it bounds an index of an array with a fixed extent. Only
    /// a plain variable counts: of `s[i - first]` the range is not known well enough.
    pub(super) fn note_limit(&mut self, expression: &Expression) {
        let (mut base, mut indexes) = (expression, Vec::new());
        while let Expression::Index(inner, index) = base {
            indexes.push(&**index);
            base = inner;
        }
        let Expression::Name(array) = base else { return };
        let Some(extents) = self.arrays.get(array).cloned() else { return };
        if self.limits.len() >= 64 {
            return;
        }
        for (index, extent) in indexes.iter().rev().zip(extents) {
            let (Expression::Name(_), Some(extent)) = (index, extent) else { continue };
            let Some(count) = self.range_of(index).hi.and_then(|hi| hi.plus(1)) else { continue };
            let [size] = count.names().try_into().unwrap_or_else(|_| [String::new()]);
            let beyond = count.subtract(&Polynomial::variable(&size));
            if let Some(beyond) = beyond.and_then(|beyond| beyond.as_number()) {
                let most = extent.saturating_sub(beyond).max(1);
                self.limits.push(SizeLimit { size, most, array: array.clone(), line: self.line });
            }
        }
    }
}
