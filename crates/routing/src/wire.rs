//! Building blocks for reading Kubernetes objects without copying each string.
//!
//! Only the fields that are used are read. An absent field, `null` and an empty value mean the
//! same; a value of the wrong type is an error.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::de::{Error, IgnoredAny, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use zonewise_common::lenient::lenient;
use zonewise_common::name::Name;
use zonewise_common::time::Seconds;

/// Reads a JSON object. Without the check, serde would also accept a list and take its items as the
/// fields in their order.
pub(crate) fn object<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, serde_json::Error> {
    if json.trim_start().starts_with('[') {
        return Err(Error::invalid_type(Unexpected::Seq, &"an object"));
    }
    serde_json::from_str(json)
}

/// The metadata of an object. `L` and `A` hold the labels and annotations that are used for its kind.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[serde(bound(deserialize = "L: Default + Deserialize<'de>, A: Default + Deserialize<'de>"))]
pub(crate) struct Meta<'a, L, A> {
    #[serde(borrow)]
    pub(crate) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) namespace: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) resource_version: Option<Text<'a>>,
    #[serde(deserialize_with = "lenient")]
    pub(crate) creation_timestamp: Seconds,
    #[serde(deserialize_with = "lenient")]
    pub(crate) labels: L,
    #[serde(deserialize_with = "lenient")]
    pub(crate) annotations: A,
}

/// A string that borrows from the object's bytes, unless it contains an escape sequence of JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Text<'a>(Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

/// A string as a [`Name`]; `None` becomes the empty name.
pub(crate) fn name(text: Option<&Text<'_>>) -> Name {
    text.map_or("", |text| text).into()
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Visit)
    }
}

/// A struct with the values of a few labels or annotations, each under its key; others are skipped.
///
/// `#[serde(rename)]` takes literals only, and the keys are constants of `zonewise_common::keys`.
macro_rules! values_by_key {
    (struct $Values:ident { $($field:ident: $KEY:path,)+ }) => {
        #[derive(Default)]
        struct $Values<'a> {
            $($field: Option<$crate::wire::Text<'a>>,)+
        }

        impl<'de: 'a, 'a> serde::Deserialize<'de> for $Values<'a> {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visit;
                impl<'de> serde::de::Visitor<'de> for Visit {
                    type Value = $Values<'de>;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("a map of strings")
                    }
                    fn visit_map<A: serde::de::MapAccess<'de>>(
                        self,
                        mut map: A,
                    ) -> Result<Self::Value, A::Error> {
                        let mut values = $Values::default();
                        while let Some(key) = map.next_key::<$crate::wire::Text<'de>>()? {
                            match &*key {
                                $($KEY => values.$field = map.next_value()?,)+
                                _ => {
                                    map.next_value::<serde::de::IgnoredAny>()?;
                                }
                            }
                        }
                        Ok(values)
                    }
                }
                deserializer.deserialize_map(Visit)
            }
        }
    };
}
pub(crate) use values_by_key;

/// The first string of a list; the others are skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct First<'a>(pub(crate) Option<Text<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for First<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = First<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of strings")
            }
            fn visit_unit<E: Error>(self) -> Result<First<'de>, E> {
                Ok(First(None))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<First<'de>, A::Error> {
                let first = list.next_element()?;
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(First(first))
            }
        }
        deserializer.deserialize_any(Visit)
    }
}

/// A list of `{"name": …}`. It nearly always has one element or none, which then needs no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names<'a> {
    first: Option<Text<'a>>,
    others: Vec<Text<'a>>,
}

impl Names<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.first.iter().chain(&self.others).any(|known| **known == *name)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Names<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Named<'a> {
            #[serde(borrow, default, deserialize_with = "lenient")]
            name: Text<'a>,
        }
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Names<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of names")
            }
            fn visit_unit<E: Error>(self) -> Result<Names<'de>, E> {
                Ok(Names::default())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Names<'de>, A::Error> {
                let mut names = Names::default();
                while let Some(Named { name }) = list.next_element()? {
                    match names.first {
                        None => names.first = Some(name),
                        Some(_) => names.others.push(name),
                    }
                }
                Ok(names)
            }
        }
        deserializer.deserialize_any(Visit)
    }
}

/// A port number from 1 to 65535; `None` for any other number.
pub(crate) fn port(number: Option<i64>) -> Option<u16> {
    number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number != 0)
}
