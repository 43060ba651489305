//! Reading Kubernetes JSON, where an absent field, `null` and an empty value mean the same.

use serde::{Deserialize, Deserializer};

/// For `#[serde(default, deserialize_with = "lenient")]`: `null` is the default value too.
///
/// # Errors
/// A value of another type.
pub fn lenient<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
