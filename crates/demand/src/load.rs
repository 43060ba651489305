//! How much the endpoints of a zone have to take of what starts in the zone.

use crate::window::Measured;
use zonewise_topology::capacity::Capacity;

/// The load of a Service, in connections per second and ready endpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// In the zone where it is largest, if its endpoints took what starts there.
    pub max: f64,
    /// On average.
    pub mean: f64,
}

/// The load of a Service with so many ready endpoints in each zone; `None` without any. What starts in zones without
/// endpoints counts for the average alone.
pub fn load(
    model: &Capacity,
    measured: &Measured<'_>,
    endpoints: impl Fn(&str) -> u64,
    all: u64,
) -> Option<Load> {
    if all == 0 {
        return None;
    }
    let mean = measured.rates.iter().sum::<f64>() / all as f64;
    let zones = model.zones.iter().zip(measured.rates);
    let of_zones = zones.map(|(zone, rate)| match endpoints(&zone.name) {
        0 => 0.0,
        endpoints => rate / endpoints as f64,
    });
    let max = of_zones.fold(mean, f64::max);
    Some(Load { max, mean })
}

#[cfg(test)]
mod tests {
    use zonewise_topology::capacity::{MissingCpu, NodeCapacity};

    use super::*;

    #[test]
    fn a_hot_zone_shows_although_the_average_is_calm() {
        let node = |zone| NodeCapacity {
            name: zone,
            zone: Some(zone),
            cpu_milli: Some(1000),
            ready: true,
            control_plane: false,
        };
        let model = Capacity::of(&["a", "b", "c"].map(node), MissingCpu::Refuse);
        let rows = [
            ([70.0, 20.0, 10.0], [2_u64, 2, 1], Some((35.0, 20.0))),
            ([10.0, 10.0, 10.0], [1, 1, 1], Some((10.0, 10.0))),
            // Those of zone c spill over to the others.
            ([10.0, 10.0, 40.0], [1, 1, 0], Some((30.0, 30.0))),
            ([0.0, 0.0, 0.0], [1, 1, 1], Some((0.0, 0.0))),
            ([1.0, 1.0, 1.0], [0, 0, 0], None),
        ];
        for (rates, endpoints, expected) in rows {
            let measured = Measured { rates: &rates, largest: None, sample: 1, silent: &[0.0; 3] };
            let of = |zone: &str| endpoints[usize::from(zone.as_bytes()[0] - b'a')];
            let found = load(&model, &measured, of, endpoints.iter().sum());
            assert_eq!(
                found.map(|load| (load.max, load.mean)),
                expected,
                "{rates:?} {endpoints:?}"
            );
        }
    }
}
