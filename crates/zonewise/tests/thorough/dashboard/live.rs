//! The page of a cluster that kubectl changes, of one that cannot be reached, and of one that can be reached again.

use std::process::Command;
use std::time::Instant;

use zonewise_testbed::objects::service;
use zonewise_testbed::{Cluster, Gate, User};

use super::cluster::cluster;
use super::page::{Dashboard, assert_quiet, tab};

fn kubectl(cluster: &Cluster, arguments: &[&str]) {
    let output = Command::new(cluster.program("kubectl"))
        .args(arguments)
        .env("KUBECONFIG", cluster.kubeconfig(User::Admin).unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_annotate_changes_the_matrix_on_the_page() {
    let (cluster, _controller) = cluster().await;
    let kubeconfig = cluster.kubeconfig(User::Observer).unwrap();
    let dashboard =
        Dashboard::start(&["--kubeconfig", kubeconfig.to_str().unwrap(), "--as-if", "proxy"]);
    let mut tab = tab(&dashboard, "#/service/shop/web");
    let home = ".heat[data-from='a'][data-to='a']";
    tab.until_text(home, "33").unwrap();
    tab.until_text("#connection", "Live").unwrap();
    kubectl(
        &cluster,
        &["-n", "shop", "annotate", "service", "web", "service.kubernetes.io/topology-mode=Auto"],
    );
    let begin = Instant::now();
    tab.until_text(home, "100").unwrap();
    println!(
        "from the end of kubectl annotate to the matrix on the page: {} ms",
        begin.elapsed().as_millis()
    );
    tab.until_text("#history .events", "asks for Auto").unwrap();
    tab.until_text("#history", "of slices").unwrap();

    // A paused page stays.
    tab.click("#pause").unwrap();
    tab.until_text("#connection", "Paused").unwrap();
    kubectl(
        &cluster,
        &["-n", "shop", "annotate", "service", "web", "service.kubernetes.io/topology-mode-"],
    );
    kubectl(&cluster, &["create", "namespace", "later"]);
    let still = tab.text(home).unwrap();
    assert!(still.starts_with("100"), "{still}");
    tab.click("#pause").unwrap();
    tab.until_text(home, "33").unwrap();

    // Services come and go.
    tab.open(&format!("{}/#/", dashboard.url)).unwrap();
    tab.until_text(".list", "shop/web").unwrap();
    kubectl(&cluster, &["-n", "later", "create", "service", "clusterip", "other", "--tcp=80"]);
    tab.until_text(".list", "later/other").unwrap();
    kubectl(&cluster, &["-n", "later", "delete", "service", "other"]);
    tab.until("!document.querySelector('.list').innerText.includes('later/other')").unwrap();
    assert_quiet(&tab);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_api_server_the_page_says_so_and_keeps_what_it_has() {
    let (cluster, _controller) = cluster().await;
    let gate = Gate::open(&cluster).await.unwrap();
    let kubeconfig = cluster.kubeconfig_through(User::Observer, &gate).unwrap();
    let dashboard = Dashboard::start(&["--kubeconfig", kubeconfig.to_str().unwrap()]);
    let mut tab = tab(&dashboard, "");
    tab.until_text(".list", "shop/web").unwrap();
    gate.cut();
    gate.reset_all();
    tab.until_text("#trouble", "The cluster cannot be read now").unwrap();
    assert!(tab.text(".list").unwrap().contains("shop/web"));
    tab.click(".rows a[href='#/service/shop/web']").unwrap();
    tab.until("document.querySelector('.matrix') !== null").unwrap();
    gate.heal();
    tab.until("document.querySelector('#trouble').hidden").unwrap();
    assert_quiet(&tab);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_is_shown_and_repaired() {
    let (cluster, _controller) = cluster().await;
    let kubeconfig = cluster.kubeconfig(User::Observer).unwrap();
    let arguments = ["--kubeconfig", kubeconfig.to_str().unwrap()];
    let dashboard = Dashboard::start(&arguments);
    let address = dashboard.address().to_string();
    let mut tab = tab(&dashboard, "");
    tab.until_text(".list", "shop/web").unwrap();
    drop(dashboard);
    tab.until_text("#connection", "Connection lost").unwrap();
    assert!(tab.text(".list").unwrap().contains("shop/web"), "what it had");
    cluster.create(&[service("shop", "new", "web")]).await.unwrap();
    let _again = Dashboard::start_at(&address, &arguments);
    tab.until_text("#connection", "Live").unwrap();
    tab.until_text(".list", "shop/new").unwrap();
}
