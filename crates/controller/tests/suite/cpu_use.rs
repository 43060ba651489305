//! Endpoints that count by the CPU that they use: what is missing is told step by step, until figures count.

use std::sync::Arc;
use std::time::Duration;

use zonewise_testbed::manifests;

use crate::common::cpu_use::{cluster, definition, feed, registration, told, weighing};
use crate::common::demand::start;
use crate::common::{ROOT, config};

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_figures_from_counting_is_told_until_they_count() {
    let _turn = crate::common::turn().await;
    let cluster = Arc::new(cluster().await);
    let web = ("shop", "web");
    let running = start(&cluster, config("")).await;
    told(&cluster, web, "False", "UseNotCollected").await;
    running.stop().await.unwrap();

    let running = start(&cluster, weighing()).await;
    told(&cluster, web, "False", "PodMetricsForbidden").await;
    let roles = manifests(format!("{ROOT}/deploy/demand/pod-metrics.yaml")).unwrap();
    cluster.create(&roles).await.unwrap();
    told(&cluster, web, "False", "PodMetricsMissing").await;
    let registration = registration();
    cluster.create(std::slice::from_ref(&registration)).await.unwrap();
    told(&cluster, web, "False", "PodMetricsUnavailable").await;
    cluster.delete(&[registration]).await.unwrap();

    cluster.create(&[definition()]).await.unwrap();
    let feeding = tokio::spawn(feed(Arc::clone(&cluster), Arc::default(), Duration::from_secs(2)));
    told(&cluster, web, "True", "UseWeighted").await;
    told(&cluster, ("shop", "odd"), "False", "UseImplausible").await;
    told(&cluster, ("other", "web"), "False", "UseNotMeasured").await;
    feeding.abort();
    running.stop().await.unwrap();
}
