//! Labels, annotations and selectors as small sorted lists, which take less memory than maps.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zonewise_common::name::Name;

/// Keys and values, sorted by key.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels(Box<[(Name, Name)]>);

impl Labels {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.entry(key).map(|(_, value)| &**value)
    }

    /// The value of a key, in a form that can be shared.
    pub fn name(&self, key: &str) -> Option<&Name> {
        self.entry(key).map(|(_, value)| value)
    }

    fn entry(&self, key: &str) -> Option<&(Name, Name)> {
        let found = self.0.binary_search_by(|(known, _)| (**known).cmp(key));
        found.ok().map(|index| &self.0[index])
    }

    /// All pairs, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &Name)> + Clone {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `labels` contain every pair of `self`, which is taken as a selector.
    pub fn selects(&self, labels: &Labels) -> bool {
        self.0.iter().all(|(key, value)| labels.get(key) == Some(value))
    }

    /// The pairs whose key satisfies `keep`.
    pub fn retain(&self, keep: impl Fn(&str) -> bool) -> Self {
        Self(self.0.iter().filter(|(key, _)| keep(key)).cloned().collect())
    }

    /// A copy with a key set to a value, or without the key when `value` is `None`.
    pub fn with(&self, key: &str, value: Option<&str>) -> Self {
        let others = self.0.iter().filter(|(known, _)| **known != *key).cloned();
        others.chain(value.map(|value| (key.into(), value.into()))).collect()
    }
}

impl<K: Into<Name>, V: Into<Name>> FromIterator<(K, V)> for Labels {
    /// Of pairs with the same key, the last is kept.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut pairs: Vec<(Name, Name)> =
            pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        pairs.reverse();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs.dedup_by(|later, first| later.0 == first.0);
        Self(pairs.into())
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(&**key, &**value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Labels;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of strings")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
                let mut pairs = Vec::with_capacity(map.size_hint().unwrap_or(4));
                while let Some((key, value)) = map.next_entry::<Name, Option<Name>>()? {
                    pairs.extend(value.map(|value| (key, value)));
                }
                Ok(pairs.into_iter().collect())
            }
            fn visit_unit<E>(self) -> Result<Labels, E> {
                Ok(Labels::default())
            }
        }
        deserializer.deserialize_any(Pairs)
    }
}
