use super::*;

#[test]
fn the_defaults_are_the_usual_ones() {
    let config = ElectionConfig::new("me");
    assert_eq!(config.check(), Ok(()));
    let times = [config.duration, config.renew_deadline, config.retry_period];
    assert_eq!(times, [15, 10, 2].map(Duration::from_secs));
    assert_eq!(
        (config.namespace.as_str(), config.name.as_str()),
        ("zonewise-system", "zonewise-controller")
    );
}

#[test]
fn each_time_leaves_room_for_the_next() {
    let cases = [
        ((15_000, 10_000, 2_000), true),
        ((15_000, 15_000, 2_000), false),
        ((15_000, 2_400, 2_000), false),
        ((15_000, 2_401, 2_000), true),
        ((15_000, 10_000, 0), false),
        ((1_000, 500, 100), true),
    ];
    for ((duration, deadline, retry), good) in cases {
        let config = ElectionConfig {
            duration: Duration::from_millis(duration),
            renew_deadline: Duration::from_millis(deadline),
            retry_period: Duration::from_millis(retry),
            ..config("me")
        };
        assert_eq!(config.check().is_ok(), good, "{config:?}");
    }
}

#[test]
fn errors_name_the_values() {
    let config = ElectionConfig { renew_deadline: Duration::from_secs(20), ..config("me") };
    let error = config.check().unwrap_err().to_string();
    let values = "lease duration 15s, renew deadline 20s, retry period 2s: ";
    assert!(error.starts_with(values), "{error}");
    for duration in [Duration::from_millis(15_500), Duration::from_secs(1 << 31)] {
        let config = ElectionConfig { duration, ..config.clone() };
        assert_eq!(config.check(), Err(ElectionConfigError::Seconds { duration }));
    }
    assert_eq!(ElectionConfig::new("").check(), Err(ElectionConfigError::Identity));
}

#[test]
fn identities_are_unique() {
    let (one, two) = (unique_identity("host"), unique_identity("host"));
    assert!(one.starts_with("host_") && one != two, "{one} {two}");
}
