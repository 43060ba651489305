//! The documents that commands print and that the dashboard shows, each with its version and kind.

use std::sync::Arc;

use serde::Serialize;
use zonewise_common::document::Document;
use zonewise_slices::service::Service;
use zonewise_topology::reason::Entry;

use crate::cost::Prices;
use crate::environment::Environment;
use crate::explanation::{Explanation, explain};
use crate::matrix::Matrix;
use crate::overview::{Cost, ServiceOverview};
use crate::plan::{Planner, ServicePlan};
use crate::route::RouteLine;
use crate::snapshot::Snapshot;
use crate::unmanaged::{Unmanaged, unmanaged};

/// What is known of one Service.
pub enum Explained {
    /// The controller writes its slices.
    Managed {
        /// Why it is routed as it is.
        explanation: Box<Explanation>,
        /// What crossing zones costs, if that is known.
        cost: Option<Cost>,
    },
    /// The controller does not write its slices.
    Unmanaged(Box<Unmanaged>),
}

/// Explains a Service as the planner says.
///
/// # Errors
/// If a proxy could not read one of the objects.
pub fn explained(
    snapshot: &Snapshot,
    service: &Arc<Service>,
    planner: &Planner,
    prices: Option<&Prices>,
) -> Result<Explained, serde_json::Error> {
    if !service.is_ours() {
        let unmanaged = unmanaged(snapshot, service, &planner.environment)?;
        return Ok(Explained::Unmanaged(Box::new(unmanaged)));
    }
    let controller_view = planner.controller_view(snapshot, service);
    let decision = controller_view.decide();
    let proxy_view = snapshot.proxy_view(service);
    let explanation = Box::new(explain(&controller_view, &decision, &proxy_view, planner)?);
    let cost = prices.and_then(|prices| prices.cost(&explanation.service, explanation.crossing));
    Ok(Explained::Managed { explanation, cost })
}

impl Explained {
    /// The explanation, if the controller writes the slices of the Service.
    pub fn explanation(&self) -> Option<&Explanation> {
        match self {
            Self::Managed { explanation, .. } => Some(explanation),
            Self::Unmanaged(_) => None,
        }
    }

    /// The document of kind `Explanation` or `UnmanagedExplanation`.
    pub fn document<'a>(&'a self, environment: &'a Environment) -> impl Serialize + use<'a> {
        match self {
            Self::Managed { explanation, cost } => {
                let one = One { environment, explanation, cost: *cost };
                ServiceDocument::Managed(Document::new("Explanation", one))
            }
            Self::Unmanaged(unmanaged) => {
                let one = OneUnmanaged { environment, unmanaged };
                ServiceDocument::Unmanaged(Document::new("UnmanagedExplanation", one))
            }
        }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum ServiceDocument<'a> {
    Managed(Document<One<'a>>),
    Unmanaged(Document<OneUnmanaged<'a>>),
}

#[derive(Serialize)]
struct One<'a> {
    environment: &'a Environment,
    #[serde(flatten)]
    explanation: &'a Explanation,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<Cost>,
}

#[derive(Serialize)]
struct OneUnmanaged<'a> {
    environment: &'a Environment,
    #[serde(flatten)]
    unmanaged: &'a Unmanaged,
}

/// The document of kind `Overview`.
pub fn overview<'a>(
    environment: &'a Environment,
    services: &'a [ServiceOverview],
) -> impl Serialize + use<'a> {
    #[derive(Serialize)]
    struct All<'a> {
        environment: &'a Environment,
        services: &'a [ServiceOverview],
    }
    Document::new("Overview", All { environment, services })
}

/// The document of kind `Routes`.
pub fn routes<'a>(
    environment: &'a Environment,
    routes: &'a [RouteLine],
) -> impl Serialize + use<'a> {
    #[derive(Serialize)]
    struct Routes<'a> {
        environment: &'a Environment,
        routes: &'a [RouteLine],
    }
    Document::new("Routes", Routes { environment, routes })
}

/// The document of kind `Matrices`.
pub fn matrices<'a>(
    environment: &'a Environment,
    matrices: &'a [Matrix],
) -> impl Serialize + use<'a> {
    #[derive(Serialize)]
    struct Matrices<'a> {
        environment: &'a Environment,
        matrices: &'a [Matrix],
    }
    Document::new("Matrices", Matrices { environment, matrices })
}

/// The document of kind `Plan`, for a few Services. That of many is written Service by Service.
pub fn plan<'a>(
    environment: &'a Environment,
    services: &'a [ServicePlan],
) -> impl Serialize + use<'a> {
    #[derive(Serialize)]
    struct Plans<'a> {
        environment: &'a Environment,
        services: &'a [ServicePlan],
    }
    Document::new("Plan", Plans { environment, services })
}

/// The document of kind `Reasons`.
pub fn reasons<'a>(reasons: &'a [&'a Entry]) -> impl Serialize + use<'a> {
    #[derive(Serialize)]
    struct Reasons<'a> {
        reasons: &'a [&'a Entry],
    }
    Document::new("Reasons", Reasons { reasons })
}
