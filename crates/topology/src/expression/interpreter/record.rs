//! Zones and endpoints as values that expressions can look into.
//!
//! The crate's own maps are copied key by key whenever a loop moves on; these are a few words.

use cel::ExecutionError;
use cel::common::traits::Indexer;
use cel::common::types::{CelDouble, CelInt, CelString, Type};
use cel::common::value::{CowVal, Val};

use super::types::{ENDPOINT, Field, ZONE};
use crate::number::to_f64;
use crate::region::Region;

static ZONE_TYPE: Type = Type::new_unspecified_type("zone");

/// A zone or an endpoint: values in the order of the fields.
#[derive(Clone, Debug)]
pub(super) struct Record<'v, const N: usize> {
    fields: &'static [Field; N],
    values: [Content<'v>; N],
}

#[derive(Clone, Debug)]
enum Content<'v> {
    Text(CelString<'v>),
    Int(CelInt),
    Double(CelDouble),
}

fn int<'v>(count: u64) -> Content<'v> {
    Content::Int(i64::try_from(count).unwrap_or(i64::MAX).into())
}

impl<'v> Record<'v, 6> {
    pub(super) fn zone(region: &Region<'_>, index: usize, name: &'v str) -> Self {
        let zone = region.zones.get(index).copied().unwrap_or_default();
        let values = [
            Content::Text(name.into()),
            int(index as u64),
            Content::Double(zone.share.into()),
            int(zone.nodes),
            int(zone.endpoints),
            Content::Double((to_f64(region.total) * zone.share).into()),
        ];
        Self { fields: &ZONE, values }
    }
}

impl<'v> Record<'v, 2> {
    pub(super) fn endpoint(zone: &'v str, index: u64) -> Self {
        Self { fields: &ENDPOINT, values: [Content::Text(zone.into()), int(index)] }
    }
}

impl<const N: usize> Val for Record<'_, N> {
    fn get_type(&self) -> &Type {
        &ZONE_TYPE
    }

    fn cel_type() -> &'static Type {
        &ZONE_TYPE
    }

    fn as_indexer<'b, 'w>(&'b self) -> Option<&'b (dyn Indexer + 'w)>
    where
        Self: 'w,
    {
        Some(self)
    }

    fn clone_as_boxed<'w>(&self) -> Box<dyn Val + 'w>
    where
        Self: 'w,
    {
        Box::new(self.clone())
    }
}

impl<const N: usize> Indexer for Record<'_, N> {
    fn get<'b, 'w>(&'b self, key: &dyn Val) -> Result<CowVal<'b, 'w>, ExecutionError>
    where
        Self: 'w,
    {
        let name = key.downcast_ref::<CelString<'_>>().map_or("", |name| name.inner());
        let found = self.fields.iter().position(|field| field.name == name);
        let value = found.and_then(|place| self.values.get(place));
        match value.ok_or_else(|| ExecutionError::no_such_key(name))? {
            Content::Text(text) => Ok(CowVal::Borrowed(text)),
            Content::Int(number) => Ok(CowVal::Borrowed(number)),
            Content::Double(number) => Ok(CowVal::Borrowed(number)),
        }
    }

    fn steal<'w>(self: Box<Self>, key: &dyn Val) -> Result<Box<dyn Val + 'w>, ExecutionError>
    where
        Self: 'w,
    {
        self.get(key).map(CowVal::into_owned)
    }
}
