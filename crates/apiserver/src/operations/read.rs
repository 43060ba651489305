//! Get and list.

use std::sync::Arc;

use super::{Ask, Outcome, World};
use crate::objects::conversion;
use crate::objects::selectors::Selector;
use crate::operations::paging::{self, Part};
use crate::status::StatusError;
use crate::store::room;

pub(super) fn get(world: &World, ask: &Ask<'_>) -> Result<Outcome, StatusError> {
    let version = paging::version(&ask.options.version).map_err(StatusError::without_reason)?;
    paging::not_ahead(version, world.store.version())?;
    let missing = || StatusError::not_found(ask.kind(), ask.resource.name());
    let key = ask.resource.key();
    let past = ask.past.filter(|_| paging::may_be_stale(ask.options));
    let object = match past {
        Some(version) => match world.store.at(room(ask.kind()), version) {
            Ok(objects) => objects.get(&*key).map(Arc::clone),
            Err(_) => None,
        },
        None => world.store.get(room(ask.kind()), &key).map(Arc::clone),
    };
    Ok(Outcome::Object(200, object.ok_or_else(missing)?))
}

pub(super) fn list(world: &World, ask: &Ask<'_>) -> Result<Part, StatusError> {
    let kind = ask.kind();
    let selector = Selector::parse(kind, &ask.options.labels, &ask.options.fields)?;
    let all = ask.options.selects_all();
    paging::list(
        &world.store,
        (room(kind), &ask.resource.prefix()),
        ask.options,
        ask.past,
        |object| all || selector.matches(&conversion::from_storage(kind, &object.value)),
    )
}
