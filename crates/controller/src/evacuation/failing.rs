//! Connections that fail elsewhere while a zone is being emptied: how many are too many. Pure.
//!
//! ```text
//!  part that fails   0 %                 2.5 %                  5 %
//!  of a Service       │   steps go on     │   the next step waits │   the zone goes back
//! ```
//!
//! What failed before anything was moved is not the evacuation's doing: the limit is twice that, if it is more than 5 %, and
//! steps wait half way between the two. A few failed connections say nothing, so there have to be [`FEWEST`] as well.

use std::cmp::Reverse;

use zonewise_common::name::Name;
use zonewise_demand::failures::{ServiceFailures, ZoneConnections};
use zonewise_inventory::evacuation::{EvacuationStatus, FailedBefore};

/// The part of a Service's connections to endpoints outside the zone that may fail.
const MOST: f64 = 0.05;
/// How many times as much as before may fail, where that is more.
const TIMES_BEFORE: f64 = 2.0;
/// As many have to fail. For a step to wait, half as many.
const FEWEST: u64 = 20;
/// The most Services for which a status says what failed before.
const MOST_BEFORE: usize = 1000;

/// What is known of connections that fail.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Failing {
    /// Nobody counts them.
    NotWatched,
    /// The proxies do.
    Watched {
        /// Of each Service with endpoints in the zone, as far as it is known.
        services: Vec<Failed>,
        /// Whether it is known of all of them, from all nodes that report.
        complete: bool,
    },
}

/// The connections of a Service to endpoints outside the zone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failed {
    /// The Service, as `namespace/name`.
    pub(crate) service: String,
    /// All that were made.
    pub(crate) connections: u64,
    /// Those that were refused or not answered.
    pub(crate) failed: u64,
    /// The zone with most of these.
    pub(crate) mostly: Name,
    /// The time that this is about.
    pub(crate) seconds: f64,
}

impl Failed {
    /// What fails of a Service while a zone is being emptied.
    pub(crate) fn outside(service: &str, known: &ServiceFailures, zone: &str) -> Self {
        let outside = known.zones.iter().filter(|(name, _)| ***name != *zone);
        let sum = |what: fn(&ZoneConnections) -> u64| -> u64 {
            outside.clone().map(|(_, counted)| what(counted)).sum()
        };
        let mostly = outside.clone().max_by_key(|(_, counted)| counted.failed);
        Self {
            service: service.to_owned(),
            connections: sum(|counted| counted.connections),
            failed: sum(|counted| counted.failed),
            mostly: mostly.map(|(name, _)| Name::clone(name)).unwrap_or_default(),
            seconds: known.seconds,
        }
    }

    /// The part that fails.
    fn part(&self) -> f64 {
        if self.connections == 0 { 0.0 } else { self.failed as f64 / self.connections as f64 }
    }

    fn is_over(&self, before: f64) -> bool {
        self.failed >= FEWEST && self.part() > MOST && self.part() >= TIMES_BEFORE * before
    }

    fn is_near(&self, before: f64) -> bool {
        self.failed >= FEWEST / 2 && self.part() > f64::midpoint(before, allowed(before))
    }

    fn line(&self, before: f64) -> String {
        let Self { service, failed, mostly, seconds, .. } = self;
        let percent = |part: f64| (part * 1000.0).round() / 10.0;
        let most = if mostly.is_empty() {
            String::new()
        } else {
            format!(", most of them to zone {mostly}")
        };
        format!(
            "{service}: {} % of the connections to endpoints outside the zone fail ({failed} in {seconds:.0} s{most}), {} % are allowed",
            percent(self.part()),
            percent(allowed(before))
        )
    }
}

/// The part that may fail of a Service of which this part failed before.
fn allowed(before: f64) -> f64 {
    MOST.max(TIMES_BEFORE * before)
}

impl Failing {
    fn services(&self) -> &[Failed] {
        match self {
            Self::NotWatched => &[],
            Self::Watched { services, .. } => services,
        }
    }

    /// The Services of which too much fails, with figures, the worst first.
    pub(crate) fn over(&self, status: &EvacuationStatus) -> Vec<String> {
        self.lines(status, Failed::is_over)
    }

    /// The Services of which nearly too much fails, likewise.
    pub(crate) fn near(&self, status: &EvacuationStatus) -> Vec<String> {
        self.lines(status, Failed::is_near)
    }

    fn lines(&self, status: &EvacuationStatus, which: fn(&Failed, f64) -> bool) -> Vec<String> {
        let with_before = self.services().iter().map(|one| (one, before(status, &one.service)));
        let mut found: Vec<_> = with_before.filter(|(one, before)| which(one, *before)).collect();
        found.sort_by(|(one, _), (other, _)| other.part().total_cmp(&one.part()));
        found.iter().map(|(one, before)| one.line(*before)).collect()
    }

    /// What fails now, to be stored before anything is moved: of most Services nothing does.
    pub(crate) fn to_store(&self) -> Vec<FailedBefore> {
        let stored = |one: &Failed| FailedBefore {
            service: one.service.as_str().into(),
            per_mille: (one.part() * 1000.0).round() as u64,
        };
        let mut parts: Vec<FailedBefore> = self.services().iter().map(stored).collect();
        parts.retain(|one| one.per_mille > 0);
        parts.sort_by_key(|one| Reverse(one.per_mille));
        parts.truncate(MOST_BEFORE);
        parts
    }

    /// Whether it is worth waiting for what the proxies report.
    pub(crate) fn may_become_known(&self) -> bool {
        matches!(self, Self::Watched { complete: false, .. })
    }

    /// What people should know who rely on it.
    pub(crate) fn note(&self) -> &'static str {
        match self {
            Self::NotWatched => {
                "; connections that fail are not watched, because the controller's demand.source is not proxies"
            }
            Self::Watched { complete: true, .. } => "",
            Self::Watched { complete: false, .. } => {
                "; connections that fail are watched in part only, because proxies do not report or have just begun to"
            }
        }
    }
}

/// The part of a Service's connections that failed before anything was moved.
fn before(status: &EvacuationStatus, service: &str) -> f64 {
    let stored = status.failed_before.iter().find(|stored| *stored.service == *service);
    stored.map_or(0.0, |stored| stored.per_mille as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(connections: u64, failed: u64) -> Failed {
        let (service, mostly) = ("shop/web".to_owned(), "b".into());
        Failed { service, connections, failed, mostly, seconds: 30.2 }
    }

    #[test]
    fn too_much_fails_above_five_percent_and_twice_what_failed_before() {
        // Connections, failed ones, the part in 1,000 that failed before; whether the zone goes back, and whether steps wait.
        let rows = [
            (1000, 0, 0, false, false),
            (1000, 25, 0, false, false),
            (1000, 26, 0, false, true),
            (1000, 50, 0, false, true),
            (1000, 51, 0, true, true),
            (100, 19, 0, false, true),
            (100, 9, 0, false, false),
            (20, 20, 0, true, true),
            (0, 0, 0, false, false),
            // What failed before as much, and a little more.
            (1000, 100, 100, false, false),
            (1000, 151, 100, false, true),
            (1000, 199, 100, false, true),
            (1000, 200, 100, true, true),
            // Little failed before: the limit is what it is without.
            (1000, 51, 10, true, true),
            // Nearly everything failed before: it cannot become twice as much.
            (1000, 1000, 600, false, true),
        ];
        for (connections, count, per_mille, over, near) in rows {
            let one = failed(connections, count);
            let before = f64::from(per_mille) / 1000.0;
            let found = (one.is_over(before), one.is_near(before));
            assert_eq!(found, (over, near), "{count} of {connections}, {per_mille} before");
        }
    }

    #[test]
    fn the_zone_itself_does_not_count() {
        let of = |connections, failed| ZoneConnections { connections, failed };
        let zones =
            [("a".into(), of(500, 400)), ("b".into(), of(150, 34)), ("c".into(), of(50, 1))];
        let known = ServiceFailures { zones: zones.into(), seconds: 30.2, complete: true };
        let found = Failed::outside("shop/web", &known, "a");
        assert_eq!(found, failed(200, 35));
        let expected = "shop/web: 17.5 % of the connections to endpoints outside the zone fail (35 in 30 s, most of them to zone b), 5 % are allowed";
        assert_eq!(found.line(0.0), expected);
        assert!(found.line(0.04).ends_with("8 % are allowed"), "{}", found.line(0.04));
    }

    #[test]
    fn what_fails_before_is_stored_where_something_does() {
        let other = Failed { service: "shop/api".to_owned(), ..failed(1000, 0) };
        let failing = Failing::Watched { services: vec![other, failed(1000, 31)], complete: true };
        let stored = [FailedBefore { service: "shop/web".into(), per_mille: 31 }];
        assert_eq!(failing.to_store(), stored);
        let status = EvacuationStatus { failed_before: stored.into(), ..Default::default() };
        assert_eq!((before(&status, "shop/web"), before(&status, "shop/api")), (0.031, 0.0));
    }
}
