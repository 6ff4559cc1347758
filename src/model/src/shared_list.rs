//! A list that many values of a document share.

use std::ops::Deref;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// A list that is stored once for all copies of it: the regions around a launch. Millions of
/// launches of a trace have the same list.
#[derive(Clone, Debug, PartialEq, Eq, Hash, JsonSchema)]
#[schemars(inline, with = "Vec<T>")]
pub struct SharedList<T>(Arc<[T]>);

impl<T: Serialize> Serialize for SharedList<T> {
    fn serialize<S: serde::Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        self.0[..].serialize(output)
    }
}

impl<T> SharedList<T> {
    /// Whether the list has no entry.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Default for SharedList<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for SharedList<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        Vec::deserialize(input).map(Self::from)
    }
}

impl<T> Deref for SharedList<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: PartialEq<U>, U, const N: usize> PartialEq<[U; N]> for SharedList<T> {
    fn eq(&self, other: &[U; N]) -> bool {
        self.0[..] == other[..]
    }
}

impl<T> From<Vec<T>> for SharedList<T> {
    fn from(list: Vec<T>) -> Self {
        // An empty list shares the one of `Default`.
        if list.is_empty() { Self::default() } else { Self(Arc::from(list)) }
    }
}

impl<T> FromIterator<T> for SharedList<T> {
    fn from_iter<I: IntoIterator<Item = T>>(list: I) -> Self {
        Self::from(Vec::from_iter(list))
    }
}
