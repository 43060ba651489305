//! What shares do to endpoints: a little model of its own, which shares no code with what it judges.

/// Where the connections of each zone go with `balanced`: zone by zone, the part that goes to each zone. `shares` is what
/// the controller believes, `endpoints` where the endpoints are.
pub(crate) fn routes(shares: &[f64], endpoints: &[u64]) -> Vec<Vec<f64>> {
    let fair = fair(endpoints);
    let kept: Vec<f64> = shares.iter().zip(&fair).map(|(share, fair)| share.min(*fair)).collect();
    let room: Vec<f64> = fair.iter().zip(&kept).map(|(fair, kept)| fair - kept).collect();
    let all: f64 = room.iter().sum();
    let route = |from: usize, to: usize| {
        let leaves = 1.0 - kept[from] / shares[from];
        let stays = if from == to { kept[from] / shares[from] } else { 0.0 };
        stays + if all > 1e-12 { leaves * room[to] / all } else { 0.0 }
    };
    let zones = 0..shares.len();
    zones.clone().map(|from| zones.clone().map(|to| route(from, to)).collect()).collect()
}

/// The part of all endpoints that each zone has.
pub(crate) fn fair(endpoints: &[u64]) -> Vec<f64> {
    let all: u64 = endpoints.iter().sum();
    endpoints.iter().map(|count| *count as f64 / all as f64).collect()
}

/// What the endpoints of each zone get, if zones send `demand` along these routes.
pub(crate) fn loads(demand: &[f64], routes: &[Vec<f64>]) -> Vec<f64> {
    let to = |zone: usize| demand.iter().zip(routes).map(|(sent, row)| sent * row[zone]).sum();
    (0..demand.len()).map(to).collect()
}

/// The load of the busiest endpoint, in fair shares: 1 is the optimum.
pub(crate) fn busiest(demand: &[f64], shares: &[f64], endpoints: &[u64]) -> f64 {
    let loads = loads(demand, &routes(shares, endpoints));
    let all: f64 = demand.iter().sum();
    let over = |(load, fair): (&f64, &f64)| load / all / fair;
    loads.iter().zip(&fair(endpoints)).map(over).fold(0.0, f64::max)
}

/// The part of the traffic that has to be elsewhere to make one distribution of another.
pub(crate) fn distance(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| (one - other).abs()).sum::<f64>() / 2.0
}

#[test]
fn the_little_model_knows_the_examples_of_the_documentation() {
    let third = 1.0 / 3.0;
    let even = [third; 3];
    assert!((busiest(&even, &even, &[4, 4, 4]) - 1.0).abs() < 1e-9);
    let hot = [0.7, 0.2, 0.1];
    assert!((busiest(&hot, &hot, &[4, 4, 4]) - 1.0).abs() < 1e-9);
    assert!((busiest(&hot, &even, &[4, 4, 4]) - 2.1).abs() < 1e-9, "who sends 70 % to a third");
}
