//! One object whose kind is known already: what lists of an API server hold.

use std::sync::Arc;

use super::head::Head;
use super::object::{Around, Read};
use super::{Fault, Item, Options, Place};

/// Reads one object.
pub fn item(source: &str, kind: &str, json: &str, options: &Options) -> Item {
    let place = Place { file: Arc::from(source), document: 1, item: None, line: 1 };
    let version = if kind == "EndpointSlice" { "discovery.k8s.io/v1" } else { "v1" };
    let list = Head { kind: Some(format!("{kind}List").into()), api_version: Some(version.into()) };
    let around = Around { place: place.clone(), list: Some(&list), options };
    match around.json(json) {
        Ok(Read::One(item)) => item,
        Ok(Read::Many(_) | Read::Nothing) => {
            let message = "the server sent a list or nothing where an object should be".into();
            Item::Fault(Fault { place, subject: kind.into(), message })
        }
        Err(error) => {
            Item::Fault(Fault { place, subject: kind.into(), message: error.to_string() })
        }
    }
}
