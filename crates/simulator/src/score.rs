//! The published score of KEP-2004, and the best score possible.
//!
//! | part | points | weight |
//! |---|---|---|
//! | in-zone traffic | 100 × part of the traffic that stays in its zone | 45 % |
//! | overload | half from the most loaded endpoint, half from the mean deviation | 40 % |
//! | slices | slices that `random` needs ÷ slices needed, × 100 | 15 % |

use zonewise_topology::allocation::{Allocation, ENDPOINTS_PER_SLICE};
use zonewise_topology::region::{Region, Zone};
use zonewise_topology::traffic::Traffic;

/// Scores of one allocation, in points and percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    /// All parts, weighted.
    pub total: f64,
    /// In-zone traffic.
    pub in_zone: f64,
    /// Overload.
    pub deviation: f64,
    /// Number of slices.
    pub slice: f64,
    /// Overload of the most loaded endpoint, percent.
    pub max_deviation: f64,
    /// Mean distance from the fair share, percent.
    pub mean_deviation: f64,
}

/// Scores what an allocation does to traffic.
#[inline]
pub fn score(region: &Region<'_>, allocation: &Allocation, traffic: &Traffic) -> Scores {
    weigh(traffic, (region.total as f64 / 100.0).ceil() / allocation.slices() as f64)
}

/// The best score any router could reach on this input. `None` where there is no endpoint.
///
/// Keeping every endpoint at its fair share is best. Let endpoints of some zones carry more, so
/// that `p` more of all traffic stays in its zone: that gains at most 45·p, but `p` more load there
/// is `p` less elsewhere, so the mean deviation costs 20·2p and the most loaded endpoint costs
/// more still. So the limit has in-zone traffic `Σ min(r, e/E)`, even load and no extra slice.
#[inline]
pub fn limit(region: &Region<'_>) -> Option<f64> {
    let present = region.present();
    if present == 0 {
        return None;
    }
    let (total, all) = (region.total as f64, present as f64);
    let sending: f64 = region.zones.iter().map(|zone| zone.share).sum();
    // Usually all of the traffic meets all of the endpoints, and this is 0. Where a zone's name came
    // again, its traffic and endpoints are lost and those left get more or less than their share.
    let deviation = sending * total / all - 1.0;
    // What is below its fair share may be filled up to it for free.
    let most = (sending / all).max(1.0 / total);
    let kept = |zone: &Zone| zone.share.min(zone.endpoints as f64 * most);
    let in_zone = region.zones.iter().map(kept).sum();
    let traffic = Traffic {
        in_zone,
        max_overload: deviation.max(0.0),
        mean_deviation: deviation.abs() * all / total,
    };
    let slices = present.div_ceil(ENDPOINTS_PER_SLICE);
    Some(weigh(&traffic, region.total.div_ceil(ENDPOINTS_PER_SLICE) as f64 / slices as f64).total)
}

#[inline]
fn weigh(traffic: &Traffic, slice_ratio: f64) -> Scores {
    let in_zone = traffic.in_zone * 100.0;
    let max_deviation = traffic.max_overload * 100.0;
    let mean_deviation = traffic.mean_deviation * 100.0;
    let deviation = 0.5 * (100.0 - max_deviation) + 0.5 * (100.0 - mean_deviation);
    let slice = slice_ratio * 100.0;
    let total = 0.45 * in_zone + 0.4 * deviation + 0.15 * slice;
    Scores { total, in_zone, deviation, slice, max_deviation, mean_deviation }
}
