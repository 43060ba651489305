//! What a Service is to proxies: not every Service can have zone routing.

use serde::Serialize;
use zonewise_slices::service::Service;

/// What a Service is to proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ServiceKind {
    /// It has a selector and a cluster IP: the controller writes its slices, and proxies route it.
    Routed,
    /// It has no cluster IP: clients get every address by DNS.
    Headless,
    /// It is an alias in DNS.
    ExternalName,
    /// It has no selector: others write its slices.
    WithoutSelector,
    /// `internalTrafficPolicy` is Local: traffic stays on its node.
    LocalPolicy,
}

impl ServiceKind {
    /// The kind of a Service; `local` says whether its internal traffic policy is Local.
    pub fn of(service: &Service, local: bool) -> Self {
        if service.external_name {
            Self::ExternalName
        } else if service.headless {
            Self::Headless
        } else if service.selector.is_none() {
            Self::WithoutSelector
        } else if local {
            Self::LocalPolicy
        } else {
            Self::Routed
        }
    }

    /// What is shown in place of a reason, in tables; `None` if zone routing can apply to it.
    pub(crate) fn remark(self) -> Option<&'static str> {
        match self {
            Self::Routed => None,
            Self::Headless => Some("(headless)"),
            Self::ExternalName => Some("(ExternalName)"),
            Self::WithoutSelector => Some("(no selector)"),
            Self::LocalPolicy => Some("(policy Local)"),
        }
    }

    /// Whether proxies route it.
    pub fn has_proxy(self) -> bool {
        !matches!(self, Self::Headless | Self::ExternalName)
    }
}
