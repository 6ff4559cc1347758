//! A list of indexes that many events share.

use std::ops::Deref;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// A list of indexes that is stored once for all copies of it. Launches of one region have the same
/// list, and a trace has millions of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, with = "Vec<u32>")]
pub struct IndexList(#[serde(serialize_with = "serialize_indexes")] Arc<[u32]>);

fn serialize_indexes<S: serde::Serializer>(all: &Arc<[u32]>, output: S) -> Result<S::Ok, S::Error> {
    all[..].serialize(output)
}

impl IndexList {
    /// Whether the list has no index.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for IndexList {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        Vec::deserialize(input).map(Self::from)
    }
}

impl Deref for IndexList {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.0
    }
}

impl From<Vec<u32>> for IndexList {
    fn from(indexes: Vec<u32>) -> Self {
        // An empty list shares the one of `Default`.
        if indexes.is_empty() { Self::default() } else { Self(Arc::from(indexes)) }
    }
}

impl FromIterator<u32> for IndexList {
    fn from_iter<I: IntoIterator<Item = u32>>(indexes: I) -> Self {
        Self::from(Vec::from_iter(indexes))
    }
}
