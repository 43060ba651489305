//! The API server, the clocks, and what the user may do.

use jiff::{SignedDuration, Timestamp};

use super::{Check, Part, Right, Sights, Stage, Subject, listed, version};
use crate::environment::{Lease, Sight};
use crate::screens::counted;

const VERSION: Subject = Subject(Part::Cluster, "kubernetes-version");
const CLOCK: Subject = Subject(Part::Cluster, "clock");
const CLOCK_OF_HOLDERS: Subject = Subject(Part::Cluster, "clocks-of-nodes");
const RIGHTS: Subject = Subject(Part::Cluster, "rights");

/// The oldest version that the chart can be installed on: since it, ValidatingAdmissionPolicy is stable.
const OLDEST: (u32, u32) = (1, 30);
/// The oldest version with ServiceCIDRs.
const WITH_SERVICE_CIDRS: (u32, u32) = (1, 33);
/// The newest version that was tried.
const NEWEST: (u32, u32) = (1, 36);

/// Clocks that differ by less do no harm: Leases are valid for 15 seconds and more.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(5);

pub(super) fn checks(sights: &Sights, stage: Stage) -> Vec<Check> {
    let mut checks = vec![kubernetes(sights.facts.version.as_deref()), clock(sights.clocks)];
    if stage == Stage::After {
        checks.push(clocks_of_holders(sights));
    }
    checks.push(rights(&sights.rights, stage));
    checks
}

fn kubernetes(found: Option<&str>) -> Check {
    let Some(found) = found else {
        return VERSION.unknown("the API server does not say its version");
    };
    match version(found) {
        None => VERSION.unknown(format!("the version {found} of the API server cannot be read")),
        Some(number) if number < OLDEST => VERSION.failed(
            format!("Kubernetes {found}: the chart needs 1.30 or later"),
            "upgrade the cluster; `zonewise explain`, `plan`, `route` and `lint` work without the chart",
        ),
        Some(number) if number < WITH_SERVICE_CIDRS => VERSION.warning(
            format!(
                "Kubernetes {found} has no ServiceCIDRs: packets to unused ClusterIPs are not dropped"
            ),
            "upgrade to 1.33 or later when you can",
        ),
        Some(number) if number > NEWEST => VERSION.warning(
            format!("Kubernetes {found} is newer than 1.36, the newest version that was tried"),
            "look for a newer zonewise, and try this one on a test cluster first",
        ),
        Some(_) => VERSION.passed(format!("Kubernetes {found}")),
    }
}

fn clock(clocks: Option<(Timestamp, Timestamp)>) -> Check {
    let Some((here, there)) = clocks else {
        return CLOCK.unknown("the API server does not say its time");
    };
    let ahead = here.duration_since(there);
    if ahead.abs() <= TOLERANCE {
        return CLOCK.passed("this machine and the API server agree about the time");
    }
    let word = if ahead.is_positive() { "ahead of" } else { "behind" };
    CLOCK.warning(
        format!("this machine's clock is {} s {word} the API server's", ahead.abs().as_secs()),
        "synchronise this machine's clock (chrony, systemd-timesyncd): tokens and certificates depend on it",
    )
}

/// A holder whose clock is ahead renews its Lease into the future, and is taken for alive for longer.
fn clocks_of_holders(sights: &Sights) -> Check {
    let facts = &sights.facts;
    let (Some(now), Sight::Seen(own)) = (facts.now, &facts.own_leases) else {
        return CLOCK_OF_HOLDERS.unknown("Leases of zonewise-system cannot be read");
    };
    let manager = facts.manager_lease.seen().and_then(Option::as_ref);
    let ahead = |lease: &&Lease| {
        lease.renewed.is_some_and(|renewed| renewed.duration_since(now) > TOLERANCE)
    };
    let ahead: Vec<&str> =
        own.iter().chain(manager).filter(ahead).map(|lease| &*lease.holder).collect();
    if ahead.is_empty() {
        return CLOCK_OF_HOLDERS.passed("no Lease was renewed in the future");
    }
    CLOCK_OF_HOLDERS.failed(
        format!(
            "the clocks of these are ahead of the API server's: {}; their Leases stay valid for too long after they stop",
            listed(ahead)
        ),
        "synchronise the clocks of their nodes (chrony, systemd-timesyncd)",
    )
}

/// What gives a user the rights for looking. The chart brings the roles.
const BIND_OBSERVER: [&str; 3] = [
    "kubectl create clusterrolebinding zonewise-observer-me --clusterrole=zonewise-observer --user=USER",
    "kubectl -n zonewise-system create rolebinding zonewise-observer-me --role=zonewise-observer --user=USER",
    "kubectl -n kube-system create rolebinding zonewise-observer-me --role=zonewise-observer --user=USER",
];

fn rights(rights: &[Right], stage: Stage) -> Check {
    let denied: Vec<&Right> = rights.iter().filter(|one| one.allowed == Some(false)).collect();
    let silent = rights.iter().filter(|one| one.allowed.is_none()).count();
    match denied.as_slice() {
        [] if silent > 0 => RIGHTS.unknown("the API server does not say what this user may do"),
        [] => RIGHTS.passed(format!("this user has {}", counted(rights.len(), "needed right"))),
        denied => {
            let named: Vec<String> = denied.iter().map(|one| one.sentence()).collect();
            let failed = RIGHTS.failed(
                format!("this user may not {}", listed(named.iter().map(String::as_str))),
                "ask an administrator for these rights (deploy/observer/rbac.yaml has those for looking), or use \
                 another context",
            );
            match stage {
                Stage::Before => failed,
                Stage::After => failed.with(BIND_OBSERVER),
            }
        }
    }
}

impl Right {
    /// `list nodes (to see zones)`.
    fn sentence(&self) -> String {
        let place = match self.namespace {
            "" => String::new(),
            namespace => format!(" in {namespace}"),
        };
        format!("{} {}{place} ({})", self.verb, self.resource, self.purpose)
    }
}
