//! Reads one object whose kind is known, from a list of an API server.

use std::sync::Arc;

use zonewise_common::api_group::{DISCOVERY_V1, NETWORKING_V1, ZONEWISE_V1ALPHA1};
use zonewise_inventory::evacuation::KIND;

use super::object::{ObjectContext, Read};
use super::type_meta::TypeMeta;
use super::{Fault, Item, Options, SourceLocation};

/// Reads one object of a list. Its kind and version are those of the list.
pub fn item(source: &str, kind: &str, json: &str, options: &Options) -> Item {
    let location = SourceLocation { file: Arc::from(source), document: 1, item: None, line: 1 };
    let version = match kind {
        "EndpointSlice" => DISCOVERY_V1,
        "ServiceCIDR" => NETWORKING_V1,
        KIND => ZONEWISE_V1ALPHA1,
        _ => "v1",
    };
    let list =
        TypeMeta { kind: Some(format!("{kind}List").into()), api_version: Some(version.into()) };
    let context = ObjectContext { location: location.clone(), list: Some(&list), options };
    match context.json(json) {
        Ok(Read::One(item)) => item,
        Ok(Read::Many(_) | Read::Nothing) => {
            let message = "the API server sent a list or nothing instead of an object".into();
            Item::Fault(Fault { location, subject: kind.into(), message })
        }
        Err(error) => {
            Item::Fault(Fault { location, subject: kind.into(), message: error.to_string() })
        }
    }
}
