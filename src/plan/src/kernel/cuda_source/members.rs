//! The members of structures: variables named `p.x`.

use std::collections::HashMap;

use super::machine::{Machine, Value};
use super::tree::{Declaration, Expression, TypeText};

impl Machine<'_> {
    /// Gives the members of a structure their values: `P p = {n, 1.0f}`, `P p = other`.
    pub(super) fn declare_members(&mut self, declared: &Declaration, kind: &TypeText) {
        let items = match &declared.init {
            Some(Expression::List(items)) => items,
            Some(Expression::Name(other)) => return self.copy_members(other, &declared.name),
            Some(_) => return,
            None => &declared.constructor,
        };
        let Some(layout) = self.types.layout(kind).filter(|_| kind.stars == 0) else { return };
        if items.len() != layout.members.len() || !declared.extents.is_empty() {
            return;
        }
        for (item, member) in items.iter().zip(layout.members) {
            let value = self.evaluate(item);
            self.variables.insert(format!("{}.{}", declared.name, member.path), value);
        }
    }

    fn copy_members(&mut self, from: &str, to: &str) {
        let copied = members_of(&self.variables, from, to);
        self.variables.extend(copied);
    }
}

/// The members of the structure `from`, named as those of `to`.
pub(super) fn members_of(
    variables: &HashMap<String, Value>,
    from: &str,
    to: &str,
) -> HashMap<String, Value> {
    let members = variables.iter().filter_map(|(name, value)| {
        let path = name.strip_prefix(from)?.strip_prefix('.')?;
        Some((format!("{to}.{path}"), value.clone()))
    });
    members.collect()
}
