//! Get and list.

use std::sync::Arc;

use super::{ApiRequest, ApiState, Outcome};
use crate::objects::conversion;
use crate::objects::selectors::Selector;
use crate::operations::paging::{self, KeyRange, ListPage};
use crate::status::StatusError;

pub(super) fn get(state: &ApiState, request: &ApiRequest<'_>) -> Result<Outcome, StatusError> {
    let version =
        paging::parse_version(&request.options.resource_version).map_err(StatusError::internal)?;
    paging::check_not_ahead(version, state.store.version())?;
    let missing = || StatusError::not_found(request.kind(), request.resource.name());
    let key = request.resource.key();
    let stale = request.stale_version.filter(|_| paging::may_be_stale(request.options));
    let object = match stale {
        Some(version) => match state.store.snapshot(request.kind().storage_resource(), version) {
            Ok(objects) => objects.get(&*key).map(Arc::clone),
            Err(_) => None,
        },
        None => state.store.get(request.kind().storage_resource(), &key).map(Arc::clone),
    };
    Ok(Outcome::Object(200, object.ok_or_else(missing)?))
}

pub(super) fn list(state: &ApiState, request: &ApiRequest<'_>) -> Result<ListPage, StatusError> {
    let kind = request.kind();
    let selector =
        Selector::parse(kind, &request.options.label_selector, &request.options.field_selector)?;
    let all = request.options.selects_all();
    let range = KeyRange { resource: kind.storage_resource(), prefix: &request.resource.prefix() };
    paging::list(&state.store, range, request.options, request.stale_version, |object| {
        all || selector.matches(&conversion::from_storage(kind, &object.value))
    })
}
