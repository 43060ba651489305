//! Inputs to start from: recorded vectors, examples, and objects in which every field is set.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use zonewise_common::protobuf::kinds;
use zonewise_common::testing;
use zonewise_common::testing::protobuf::{bytes, encode, envelope, watch_event};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files of a folder with one of these endings, sorted by name.
fn files(folder: &str, endings: &[&str]) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(root().join(folder)).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| endings.iter().any(|ending| path.to_string_lossy().ends_with(ending)));
    paths.sort();
    paths.iter().filter_map(|path| fs::read(path).ok()).collect()
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn full() -> [Value; 5] {
    [
        testing::full_node(),
        testing::full_pod(),
        testing::full_service(),
        testing::full_slice(),
        testing::full_lease(),
    ]
}

/// How many recorded vectors are taken from each file.
const VECTORS: usize = 20;

/// Objects with every field, and those of recorded vectors.
pub(crate) fn objects() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> =
        full().iter().map(|object| object.to_string().into_bytes()).collect();
    for name in ["reconcile", "select-endpoints"] {
        let path = root().join(format!("testdata/upstream/{name}.jsonl.gz"));
        let Ok(file) = fs::File::open(path) else { continue };
        let lines = BufReader::new(GzDecoder::new(file)).lines().map_while(Result::ok);
        for line in lines.take(VECTORS) {
            let vector: Value = serde_json::from_str(&line).unwrap_or_default();
            kubernetes_objects(&vector, &mut all);
        }
    }
    all
}

/// All values within a value that look like an object of the API.
fn kubernetes_objects(value: &Value, found: &mut Vec<Vec<u8>>) {
    match value {
        Value::Object(fields) if fields.contains_key("metadata") => {
            found.push(value.to_string().into_bytes());
        }
        Value::Object(fields) => fields.values().for_each(|one| kubernetes_objects(one, found)),
        Value::Array(values) => values.iter().for_each(|one| kubernetes_objects(one, found)),
        _ => {}
    }
}

pub(crate) fn lists() -> Vec<Vec<u8>> {
    let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": full()});
    let mut all = files("testdata/truth", &[".json"]);
    all.push(list.to_string().into_bytes());
    all.push(serde_json::to_vec_pretty(&list).unwrap_or_default());
    all.extend(texts(&[r#"{"items":null}"#, r#"{"items":[],"metadata":{}}"#]));
    all
}

/// Objects in protobuf with every field, alone, in a list and in a watch.
pub(crate) fn protobuf() -> Vec<Vec<u8>> {
    let kinds = [&kinds::NODE, &kinds::POD, &kinds::SERVICE, &kinds::ENDPOINT_SLICE, &kinds::LEASE];
    let mut all = Vec::new();
    for (kind, object) in kinds.into_iter().zip(full()) {
        let object = encode(kind.fields, &object);
        let items = [bytes(1, bytes(2, "7")), bytes(2, &object), bytes(2, &object)].concat();
        let event = watch_event("ADDED", &envelope("v1", kind.name, &object));
        all.push(envelope("v1", &format!("{}List", kind.name), &items));
        all.extend([event[4..].to_vec(), event, object]);
    }
    all
}

/// The shop of the examples.
pub(crate) fn shop() -> Vec<Vec<u8>> {
    let mut all = files("examples/shop", &[".yaml"]);
    all.extend(files("examples", &["shop-slices.yaml"]));
    all
}

pub(crate) fn manifests() -> Vec<Vec<u8>> {
    let mut all = files("examples/shop", &[".yaml"]);
    all.extend(files("testdata/lint", &[".yaml"]));
    all.extend(files("testdata/truth", &[".json"]));
    all.extend(texts(&["apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: 'https://127.0.0.1'}}]\nusers: [{name: b, user: {token: t}}]\ncontexts: [{name: c, context: {cluster: a, user: b}}]\ncurrent-context: c\n"]));
    all
}

pub(crate) fn data_sets() -> Vec<Vec<u8>> {
    let whole = files("testdata/simulator", &["zones.csv", "-b.csv", "-z1.csv"]);
    let beginning = |bytes: Vec<u8>| bytes.into_iter().take(4000).collect();
    let mut all: Vec<Vec<u8>> = whole.into_iter().map(beginning).collect();
    all.extend(texts(&["name,a,b\nx,1/2,3/4\n", "\u{feff}name,\"a \"\"b\"\"\"\r\nx,1/1\r\n"]));
    all
}

/// Reviews of a new slice and of a changed one, of one without endpoints, and of none.
pub(crate) fn reviews() -> Vec<Vec<u8>> {
    let review = |object: Value, before: Value| {
        let request = json!({
            "uid": "7", "namespace": "shop", "operation": "UPDATE", "object": object, "oldObject": before,
        });
        let kinds = ("admission.k8s.io/v1", "AdmissionReview");
        json!({"apiVersion": kinds.0, "kind": kinds.1, "request": request}).to_string().into_bytes()
    };
    let mut empty = testing::full_slice();
    empty["endpoints"].take();
    vec![
        review(testing::full_slice(), Value::Null),
        review(testing::full_slice(), empty.clone()),
        review(empty, Value::Null),
        review(Value::Null, testing::full_slice()),
    ]
}

pub(crate) fn zone_shares() -> Vec<Vec<u8>> {
    texts(&[
        r#"{"v":1,"endpoints":{"a":3,"b":1},"from":{"a":{"a":1000000},"b":{"a":250000,"b":750000}}}"#,
        r#"{"v":1,"endpoints":{},"from":{}}"#,
        r#"{"v":2,"endpoints":{"a":4294967295},"from":{"a":{"a":4294967295}}}"#,
    ])
}

pub(crate) fn demand() -> Vec<Vec<u8>> {
    texts(&[
        r#"{"version":1,"node":"n1","zone":"a","started":7,"sequence":42,"services":{"shop/web":{"a":[120,48000,960000],"":[4,0,0]}},"unassigned":7}"#,
        r#"{"version":1,"node":"n1","zone":"a","started":7,"sequence":43,"services":{"shop/web":{"a":[120,0,0],"b":[40,0,0]}},"failed":{"shop/web":{"b":12}}}"#,
        r#"{"version":1,"node":"n1","zone":"","started":0,"sequence":0,"services":{}}"#,
        r#"{"v":1,"at":1763430000000,"zones":["a","b"],"services":{"shop/web":{"s":[700000,300000],"n":[700,300],"r":6.5,"m":true,"a":3,"d":1}}}"#,
        r#"{"v":1,"at":0,"zones":[],"services":{"x":{"s":[],"n":[],"r":1e300,"a":18446744073709551615}}}"#,
        r#"{"v":1,"at":1763430000000,"full":1,"left":2,"services":{"shop/cart":{"f":true},"shop/in":{"p":0.83},"shop/web":{"w":[12,612]}}}"#,
        r#"{"v":9,"at":5,"full":18446744073709551615,"services":{"":{"f":true,"p":1e308,"w":[18446744073709551615]}},"more":[]}"#,
        r#"{"v":1,"at":1763430000000,"services":{"shop/web":{"z":{"a":[40,120,41,310],"b":[100,700,0,0]},"r":9.5,"c":30}}}"#,
        r#"{"v":1,"at":7,"services":{"x":{"z":{"":[0,18446744073709551615,9,9999]},"r":-1,"c":18446744073709551615,"s":1,"d":9}}}"#,
        r#"{"v":1,"at":1763430000000,"f":"missing","services":{"shop/web":{"z":{"a":[71,"u",4,4,812,20,0],"b":[122,"o",4,3,410,18,0]},"r":9.5,"c":75,"p":15}}}"#,
        r#"{"v":1,"at":7,"services":{"x":{"z":{"":[65535,"?",1,18446744073709551615,18446744073709551615,9,9]},"r":-1,"p":18446744073709551615}}}"#,
    ])
}

pub(crate) fn metrics_pages() -> Vec<Vec<u8>> {
    texts(&[
        "# TYPE zonewise_service_bytes_total counter\n\
         zonewise_service_bytes_total{namespace=\"shop\",service=\"web\",from_zone=\"a\",to_zone=\"b\"} 42 1763430000\n",
        "zonewise_service_bytes_total{namespace=\"a\\\"b\\\\c\\n\",service=\"\"} 7.5e1\nzonewise_service_bytes_total{} +Inf\n",
        "zonewise_service_bytes_total 3\nzonewise_service_bytes_total NaN\nzonewise_service_bytes_total_more 4\n",
    ])
}

pub(crate) fn what_if() -> Vec<Vec<u8>> {
    texts(&[
        "{}",
        r#"{"endpoints":{"eu-a":7,"eu-b":0},"nodes":{"eu-a":4},"cores":{"eu-b":3.5},"demand":{"eu-a":70,"eu-c":30},"lost":["eu-c"]}"#,
        r#"{"ask":{"key":"zonewise.dev/routing-preference","value":"zonewise.dev/balanced:max-overload=0.2"}}"#,
        r#"{"ask":{"key":"endpointslice.kubernetes.io/subsetting","value":"Auto","startingThreshold":3,"padding":1},"lost":["eu-a","eu-a"]}"#,
        r#"{"ask":{"key":"spec.trafficDistribution","value":"PreferSameNode"},"nodes":{"eu-a":0,"eu-b":1000}}"#,
    ])
}

pub(crate) fn configuration() -> Vec<Vec<u8>> {
    let mut all = files("deploy/controller", &[".yaml"]);
    all.extend(files("deploy/proxy", &[".yaml"]));
    all.extend(texts(&[
        "apiVersion: zonewise.dev/v1alpha1\nkind: ControllerConfiguration\nheuristics:\n- name: example.com/mine\n  expression: 'zones.map(z, z.name)'\n",
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\nclusterCIDR: 10.0.0.0/8\n",
    ]));
    all
}

/// Requests to the embedded API server: the first byte chooses the content type.
pub(crate) fn api_requests() -> Vec<Vec<u8>> {
    let service = testing::full_service();
    let bodies = [
        json!([{"op": "replace", "path": "/spec/ports/0/port", "value": 81}, {"op": "test", "path": "/kind", "value": "Service"}, {"op": "move", "from": "/metadata/labels", "path": "/metadata/annotations"}]),
        json!({"metadata": {"annotations": {"a": "b", "c": null}}, "spec": {"ports": []}}),
        json!({"spec": {"ports": [{"port": 80, "$patch": "delete"}], "$setElementOrder/ports": [{"port": 80}]}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [{"port": 82}]}}),
        service,
    ];
    let protobuf = zonewise_apiserver::testing::to_protobuf(&bodies[4]).unwrap_or_default();
    let bodies = bodies.iter().map(|body| body.to_string().into_bytes()).chain([protobuf]);
    let input = |(kind, body): (u8, Vec<u8>)| [vec![kind], body].concat();
    (0..).zip(bodies).map(input).collect()
}

/// Messages as netlink writes them: a header with length, type, flags, sequence and port; a family; attributes.
pub(crate) fn netlink_answers() -> Vec<Vec<u8>> {
    const NFTABLES: u16 = 10 << 8;
    const CONNTRACK: u16 = 1 << 8;
    let attribute = |kind: u16, value: &[u8]| {
        let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let message = |kind: u16, attributes: &[Vec<u8>]| {
        let body = [&[2, 0, 0, 0], &*attributes.concat()].concat();
        let length = u32::try_from(body.len() + 16).unwrap_or(u32::MAX);
        let head = [
            length.to_ne_bytes(),
            [kind.to_ne_bytes(), 2_u16.to_ne_bytes()].concat().try_into().unwrap_or_default(),
        ];
        [&*head.concat(), &[0; 8], &*body].concat()
    };
    let named = [attribute(1, b"zonewise\0"), attribute(2, &[0, 0, 0, 1]), attribute(3, b"name\0")];
    let nested = attribute(
        3 | 1 << 15,
        &attribute(1 | 1 << 15, &attribute(1, &attribute(1, &[10, 96, 0, 1]))),
    );
    let kinds = [0, 3, 6, 9, 12, 15, 18];
    let mut all: Vec<Vec<u8>> = kinds.iter().map(|kind| message(NFTABLES | kind, &named)).collect();
    all.push(message(NFTABLES | 12, &[attribute(1, b"zonewise\0"), nested.clone()]));
    all.push(message(CONNTRACK, &[nested]));
    // The end of a list, and an acknowledgement with an error.
    let end =
        [&20_u32.to_ne_bytes()[..], &3_u16.to_ne_bytes(), &2_u16.to_ne_bytes(), &[0; 12]].concat();
    let error = [
        &36_u32.to_ne_bytes()[..],
        &2_u16.to_ne_bytes(),
        &0_u16.to_ne_bytes(),
        &[0; 8],
        &(-2_i32).to_ne_bytes(),
        &[0; 16],
    ]
    .concat();
    let both: Vec<u8> = all.concat().into_iter().chain(end.clone()).collect();
    all.extend([end, error, both]);
    all
}
