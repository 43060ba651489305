//! A page for others: TLS, a token of the cluster, and the namespaces that its bearer may list.

use serde_json::{Value, json};
use zonewise_testbed::objects::{namespace, node, service};
use zonewise_testbed::{Tab, User, manifests};

use super::page::Dashboard;
use crate::nodes::plain_cluster;
use crate::observe::run::run;

const ROLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/dashboard/rbac.yaml");

/// Lets the observer's account view one namespace.
fn view_of(namespace: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "view", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looks"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": User::Observer.name()}],
    })
}

/// What the ClusterRole `view` allows of what the page shows; kube-controller-manager makes that one, and none runs here.
fn looks() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "looks"},
        "rules": [
            {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list"]},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list"]},
        ],
    })
}

/// Types a token into the page.
fn enter(tab: &mut Tab, token: &str) {
    tab.click("#token").unwrap();
    tab.write(token).unwrap();
    tab.click(".token button").unwrap();
}

/// The status and the answer to a question of somebody with a token.
fn ask_as(tab: &mut Tab, path: &str, token: &str) -> String {
    let expression = format!(
        "fetch('/api/v1/{path}', {{headers: {{authorization: 'Bearer {token}'}}}})\
         .then(async (answer) => answer.status + ' ' + await answer.text())"
    );
    tab.evaluate(&expression).unwrap().as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn people_see_the_namespaces_that_they_may_list_and_no_others() {
    let cluster = plain_cluster().await;
    let mut objects = manifests(ROLES).unwrap();
    objects.extend([node("n1", "a", "4"), namespace("shop"), looks(), view_of("shop")]);
    let with_address = |mut service: Value| {
        service["spec"]["externalIPs"] = json!(["203.0.113.7"]);
        service
    };
    // Created first, so that the address is its own.
    cluster
        .create(&[namespace("secret"), with_address(service("secret", "hidden", "web"))])
        .await
        .unwrap();
    objects
        .extend([service("shop", "web", "web"), with_address(service("shop", "curious", "web"))]);
    cluster.create(&objects).await.unwrap();
    let kubeconfig = cluster.kubeconfig(User::Dashboard).unwrap();
    // TLS by a certificate of its own: the address is not one of loopback.
    let dashboard = Dashboard::start_at(
        "0.0.0.0:0",
        &["--kubeconfig", kubeconfig.to_str().unwrap(), "--as-if", "proxy"],
    );
    assert!(dashboard.url.starts_with("https://"), "{}", dashboard.url);
    let mut tab = Tab::start().unwrap();
    tab.open(&dashboard.url.replace("0.0.0.0", "127.0.0.1")).unwrap();
    tab.until_text("#connection", "Token needed").unwrap();
    assert_eq!(tab.evaluate("document.querySelectorAll('.rows .row').length").unwrap(), 0);

    enter(&mut tab, "nonsense");
    tab.until_text("#trouble", "the API server does not accept the token").unwrap();
    enter(&mut tab, cluster.token(User::Observer));
    tab.until_text(".list", "shop/web").unwrap();
    let all = tab.evaluate("document.querySelector('.list').innerText").unwrap();
    assert!(!all.to_string().contains("hidden"), "{all}");

    let token = cluster.token(User::Observer);
    let mut ask = |path: &str, token: &str| ask_as(&mut tab, path, token);
    let overview = ask("overview", token);
    assert!(
        overview.starts_with("200")
            && overview.contains("shop/web")
            && !overview.contains("hidden"),
        "{overview}"
    );
    let same = ask("service?name=secret%2Fnone", token).replace("none", "hidden");
    assert_eq!(ask("service?name=secret%2Fhidden", token), same, "whether it exists is not told");
    assert!(ask("service?name=shop%2Fweb", token).starts_with("200"));
    for path in ["service?name=shop%2Fcurious", "routes?name=shop%2Fcurious&from=a"] {
        let answer = ask(path, token);
        assert!(
            answer.contains("a Service of another namespace has this address and port"),
            "{answer}"
        );
        assert!(!answer.contains("hidden"), "whose address it is, is not told: {answer}");
        assert!(ask(path, cluster.token(User::Admin)).contains("secret/hidden has this address"));
    }
    assert!(ask("overview", cluster.token(User::Admin)).contains("secret/hidden"));
    assert!(ask("overview", cluster.token(User::Proxy)).starts_with("403"));
    assert!(ask("overview", "").starts_with("401"));

    // A new namespace of theirs comes by itself.
    let later = [namespace("later"), view_of("later"), service("later", "new", "web")];
    cluster.create(&later).await.unwrap();
    tab.until_text(".list", "later/new").unwrap();

    let flood = "Promise.all(Array.from({length: 200}, (_, number) => \
                 fetch('/api/v1/overview', {headers: {authorization: 'Bearer unknown' + number}})\
                 .then((answer) => answer.status)))";
    let statuses = tab.evaluate(flood).unwrap();
    let statuses: Vec<u64> = serde_json::from_value(statuses).unwrap();
    let refused = |wanted: u64| statuses.iter().filter(|status| **status == wanted).count();
    assert_eq!(refused(401) + refused(429), 200, "{statuses:?}");
    assert!(refused(429) > 0, "unknown tokens cost the API server a bounded number of reviews");
    let known = ask_as(&mut tab, "overview", token);
    assert!(known.starts_with("200"), "who is known is not kept out by those who are not: {known}");
}

#[test]
fn files_are_not_shown_to_others() {
    let ran = run(&["dashboard", "-f", "examples/shop", "--address", "0.0.0.0:0"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("files have none: use 127.0.0.1"), "{}", ran.err);
}
