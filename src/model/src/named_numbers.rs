//! A compact map from names to numbers, for thousands of small lists that repeat a few names. Names
//! are shared, and an entry takes 24 bytes. In JSON it is an object.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};

/// Numbers by name, sorted by name.
#[derive(Clone, PartialEq)]
pub struct NamedNumbers<V>(Vec<(Arc<str>, V)>);

impl<V> NamedNumbers<V> {
    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names and numbers, in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }

    /// The numbers, in the order of their names.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    /// The number of a name; `None` if there is no such entry.
    pub fn get(&self, name: &str) -> Option<&V> {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    /// Removes all entries and frees their memory.
    pub fn clear(&mut self) {
        self.0 = Vec::new();
    }

    /// The number of a name; a missing name is added with the default. Adding many names is fast
    /// only in sorted order: an insertion in the middle moves all entries behind it.
    pub fn entry(&mut self, name: &Arc<str>) -> &mut V
    where
        V: Default,
    {
        let sorts_last = self.0.last().is_none_or(|(last, _)| **last < **name);
        let at = if sorts_last {
            Err(self.0.len())
        } else {
            self.0.binary_search_by(|(known, _)| known.cmp(name))
        };
        let at = at.unwrap_or_else(|index| {
            self.0.insert(index, (Arc::clone(name), V::default()));
            index
        });
        &mut self.0[at].1
    }

    /// Shared names and numbers, in the order of names.
    pub fn shared(&self) -> impl Iterator<Item = (&Arc<str>, &V)> {
        self.0.iter().map(|(name, value)| (name, value))
    }

    /// Frees unused capacity, which adds up over many launches.
    pub fn shrink(&mut self) {
        self.0.shrink_to_fit();
    }
}

impl<V> Default for NamedNumbers<V> {
    fn default() -> NamedNumbers<V> {
        NamedNumbers(Vec::new())
    }
}

impl<V> From<BTreeMap<Arc<str>, V>> for NamedNumbers<V> {
    fn from(map: BTreeMap<Arc<str>, V>) -> NamedNumbers<V> {
        NamedNumbers(map.into_iter().collect())
    }
}

impl<V: fmt::Debug> fmt::Debug for NamedNumbers<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<V: Serialize> Serialize for NamedNumbers<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for NamedNumbers<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NamedNumbers<V>, D::Error> {
        let map: BTreeMap<String, V> = BTreeMap::deserialize(deserializer)?;
        Ok(NamedNumbers(map.into_iter().map(|(name, value)| (name.into(), value)).collect()))
    }
}

impl<V: JsonSchema> JsonSchema for NamedNumbers<V> {
    fn inline_schema() -> bool {
        BTreeMap::<String, V>::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        BTreeMap::<String, V>::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        BTreeMap::<String, V>::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, V>::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_any_order_are_one_sorted_object_and_come_back_from_it() {
        let mut numbers: NamedNumbers<u64> = NamedNumbers::default();
        for (name, added) in [("b", 1), ("a", 2), ("c", 3), ("a", 5)] {
            *numbers.entry(&Arc::from(name)) += added;
        }
        let text = serde_json::to_string(&numbers).unwrap();
        assert_eq!(text, r#"{"a":7,"b":1,"c":3}"#);
        assert_eq!(serde_json::from_str::<NamedNumbers<u64>>(&text).unwrap(), numbers);
        let shared: BTreeMap<_, _> =
            numbers.shared().map(|(name, n)| (Arc::clone(name), *n)).collect();
        assert_eq!(NamedNumbers::from(shared), numbers);
        assert_eq!(format!("{numbers:?}"), r#"{"a": 7, "b": 1, "c": 3}"#);
        assert_eq!(
            (numbers.get("a"), numbers.get("d"), numbers.values().sum()),
            (Some(&7), None, 11)
        );
    }
}
