//! The page that Prometheus reads, byte by byte.

use std::thread;

use zonewise_telemetry::metrics::{Kind, MetricError, Registry};

#[test]
fn a_page_is_sorted_by_name_and_label_values() {
    let registry = Registry::default();
    let moved = registry.counter("moves", "Endpoints moved.", ["zone", "why"]).unwrap();
    moved.with(["b", "late"]).add(2);
    moved.with(["a", "late"]).inc();
    moved.with(["a", "early"]).add(1_500_000);
    registry.gauge("depth", "Keys waiting.", []).unwrap().with([]).set(2.5);
    assert_eq!(
        registry.text(),
        "# HELP depth Keys waiting.\n\
         # TYPE depth gauge\n\
         depth 2.5\n\
         # HELP moves Endpoints moved.\n\
         # TYPE moves counter\n\
         moves{zone=\"a\",why=\"early\"} 1.5e+06\n\
         moves{zone=\"a\",why=\"late\"} 1\n\
         moves{zone=\"b\",why=\"late\"} 2\n"
    );
}

#[test]
fn without_labels_a_metric_starts_at_zero_with_labels_it_is_missing() {
    let registry = Registry::default();
    registry.counter("syncs", "Syncs.", []).unwrap();
    registry.counter("failures", "Failures.", ["why"]).unwrap();
    assert_eq!(registry.text(), "# HELP syncs Syncs.\n# TYPE syncs counter\nsyncs 0\n");
}

#[test]
fn a_bucket_counts_what_is_at_or_below_its_bound() {
    let registry = Registry::default();
    let sizes = registry.histogram("size", "Sizes.", ["zone"], &[0.5, 2.0, 1e6]).unwrap();
    let sizes = sizes.with(["a"]);
    [0.5, 0.75, 2.0, 3.0, 2e6, f64::NAN].into_iter().for_each(|value| sizes.observe(value));
    assert_eq!(
        registry.text(),
        "# HELP size Sizes.\n\
         # TYPE size histogram\n\
         size_bucket{zone=\"a\",le=\"0.5\"} 1\n\
         size_bucket{zone=\"a\",le=\"2\"} 3\n\
         size_bucket{zone=\"a\",le=\"1e+06\"} 4\n\
         size_bucket{zone=\"a\",le=\"+Inf\"} 5\n\
         size_sum{zone=\"a\"} 2.00000625e+06\n\
         size_count{zone=\"a\"} 5\n"
    );
}

#[test]
fn a_histogram_without_labels_is_there_from_the_start() {
    let registry = Registry::default();
    registry.histogram("wait", "Waits.", [], &[1.0]).unwrap();
    let lines = "wait_bucket{le=\"1\"} 0\nwait_bucket{le=\"+Inf\"} 0\nwait_sum 0\nwait_count 0\n";
    assert!(registry.text().ends_with(lines), "{}", registry.text());
}

#[test]
fn help_and_label_values_are_escaped() {
    let registry = Registry::default();
    let odd = registry.gauge("odd", "A \\ and\na \"line\".", ["path"]).unwrap();
    odd.with(["C:\\x\n\"y\""]).set(f64::INFINITY);
    assert_eq!(
        registry.text(),
        "# HELP odd A \\\\ and\\na \"line\".\n\
         # TYPE odd gauge\n\
         odd{path=\"C:\\\\x\\n\\\"y\\\"\"} +Inf\n"
    );
}

#[test]
fn values_computed_when_asked() {
    let registry = Registry::default();
    let inner = registry.clone();
    registry
        .collect("zones", "Nodes by zone.", Kind::Gauge, ["zone"], move |samples| {
            // A closure may use the registry.
            inner.counter("scrapes", "Pages.", []).unwrap().with([]).inc();
            samples.push(["b"], 1.0);
            samples.push(["a"], 3.0);
        })
        .unwrap();
    let page = "# HELP zones Nodes by zone.\n# TYPE zones gauge\n\
                zones{zone=\"a\"} 3\nzones{zone=\"b\"} 1\n";
    assert!(registry.text().ends_with(page));
    assert!(registry.text().contains("\nscrapes 1\n"), "the first page had none yet");
}

#[test]
fn a_gauge_goes_up_and_down_and_away() {
    let registry = Registry::default();
    let family = registry.gauge("open", "Open.", ["to"]).unwrap();
    let gauge = family.with(["a"]);
    gauge.inc();
    gauge.add(4.0);
    gauge.dec();
    assert_eq!(family.with(["a"]).get(), 4.0);
    family.remove(["a"]);
    gauge.inc();
    assert_eq!(registry.text(), "");
    assert_eq!(family.with(["a"]).get(), 0.0);
}

#[test]
fn the_same_registration_is_the_same_metric_another_is_an_error() {
    let registry = Registry::default();
    let taken = |name: &str| MetricError::Taken { name: name.to_owned() };
    let first = registry.counter("n", "Help.", ["a"]).unwrap();
    let again = registry.counter("n", "Help.", ["a"]).unwrap();
    first.with(["x"]).inc();
    assert_eq!(again.with(["x"]).get(), 1);
    assert_eq!(registry.counter("n", "Other.", ["a"]).unwrap_err(), taken("n"));
    assert_eq!(registry.counter("n", "Help.", ["b"]).unwrap_err(), taken("n"));
    assert_eq!(registry.gauge("n", "Help.", ["a"]).unwrap_err(), taken("n"));

    registry.histogram("h", "Help.", [], &[1.0]).unwrap();
    registry.histogram("h", "Help.", [], &[1.0]).unwrap();
    assert_eq!(registry.histogram("h", "Help.", [], &[2.0]).unwrap_err(), taken("h"));

    registry.collect("c", "Help.", Kind::Gauge, [], |_| {}).unwrap();
    let second = registry.collect("c", "Help.", Kind::Gauge, [], |_| {});
    assert_eq!(second.unwrap_err(), taken("c"));
}

#[test]
fn names_that_prometheus_cannot_read_are_refused() {
    let registry = Registry::default();
    for name in ["", "1st", "a-b", "zö", "a b"] {
        let error = registry.counter(name, "", []).unwrap_err();
        assert_eq!(error, MetricError::Name { name: name.to_owned() });
    }
    registry.counter("ns:ok_2", "", ["_ok", "le"]).unwrap();
    for labels in [["a:b", "x"], ["__own", "x"], ["x", "x"], ["", "x"], ["x", "le"]] {
        let error = registry.histogram("h", "", labels, &[]).unwrap_err();
        assert!(matches!(error, MetricError::Label { .. }), "{labels:?} {error}");
    }
    for buckets in [vec![2.0, 1.0], vec![1.0, 1.0], vec![f64::INFINITY], vec![f64::NAN]] {
        let error = registry.histogram("h", "", [], &buckets).unwrap_err();
        assert!(matches!(error, MetricError::Buckets { .. }), "{buckets:?} {error}");
    }
    let error = registry.collect("h", "", Kind::Histogram, [], |_| {}).unwrap_err();
    assert_eq!(error, MetricError::Computed { name: "h".to_owned() });
    assert_eq!(registry.text(), "");
}

#[test]
fn nothing_is_lost_between_threads() {
    const THREADS: usize = 8;
    const TIMES: usize = 10_000;
    let registry = Registry::default();
    let counters = registry.counter("counter", "", ["x"]).unwrap();
    let gauge = registry.gauge("gauge", "", []).unwrap().with([]);
    let sizes = registry.histogram("sizes", "", [], &[0.25, 1.0]).unwrap().with([]);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let counter = counters.with(["same"]);
                for _ in 0..TIMES {
                    counter.inc();
                    gauge.add(0.5);
                    sizes.observe(0.5);
                }
            });
        }
    });
    let all = THREADS * TIMES;
    assert_eq!(counters.with(["same"]).get(), all as u64);
    assert_eq!(gauge.get(), all as f64 / 2.0);
    let page = registry.text();
    assert!(page.contains("sizes_bucket{le=\"0.25\"} 0\nsizes_bucket{le=\"1\"} 80000\n"), "{page}");
    assert!(page.contains("sizes_sum 40000\nsizes_count 80000\n"), "{page}");
}
