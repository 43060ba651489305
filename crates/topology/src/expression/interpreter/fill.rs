//! From an expression's answer to an allocation.

use crate::allocation::{Allocation, Carrier, Label};
use crate::number::to_f64;
use crate::region::Region;

/// One group for each list of zones.
pub(super) fn hints(region: &Region<'_>, groups: &[(Vec<u32>, Vec<u64>)], out: &mut Allocation) {
    out.begin(region, Carrier::Hints);
    for (zones, contents) in groups {
        let group = match zones[..] {
            [zone] => out.add_group(Label::Zone(zone)),
            _ => {
                let group = out.add_group(Label::Shared);
                zones.iter().for_each(|&zone| out.name_zone(zone));
                group
            }
        };
        for (source, &endpoints) in contents.iter().enumerate() {
            out.put(group, source, endpoints);
        }
        for &zone in zones {
            out.set_weight(group, zone as usize, 1.0);
        }
    }
    out.serve_the_unserved();
}

/// One group for each source. No expression can name endpoints without a zone: every zone sends
/// them their fair part, and divides the rest as asked.
pub(super) fn shares(region: &Region<'_>, rows: &[Vec<f64>], out: &mut Allocation) {
    out.begin(region, Carrier::Shares);
    for source in 0..region.sources() {
        let zone = source < region.zones.len();
        out.add_group(if zone { Label::Zone(source as u32) } else { Label::Unplaced });
        out.put(source, source, region.endpoints_at(source));
    }
    let unplaced = to_f64(region.unplaced) / to_f64(region.present());
    for (zone, row) in rows.iter().enumerate() {
        // What was meant for zones without endpoints goes to the others.
        let wanted = |source: usize| {
            if region.endpoints_at(source) > 0 { row[source] } else { 0.0 }
        };
        let largest = (0..row.len()).map(wanted).fold(0.0, f64::max);
        if largest == 0.0 {
            continue;
        }
        let sum: f64 = (0..row.len()).map(|source| wanted(source) / largest).sum();
        for source in (0..row.len()).filter(|&source| wanted(source) > 0.0) {
            let part = (1.0 - unplaced) * (wanted(source) / largest / sum);
            out.set_weight(source, zone, part / to_f64(region.endpoints_at(source)));
        }
        if region.unplaced > 0 {
            out.set_weight(region.zones.len(), zone, unplaced / to_f64(region.unplaced));
        }
    }
    out.serve_the_unserved();
}
