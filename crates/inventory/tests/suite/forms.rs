//! Objects in JSON and in protobuf: both forms give the same structs, whatever the object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::Value;
use tokio::task::JoinSet;
use zonewise_cluster::api::ApiError;
use zonewise_cluster::watch::{self, ContentType, Resource, WatchListener};
use zonewise_common::encoded::{DecodeError, Encoded};
use zonewise_common::name::{Key, Keyed, Name};
use zonewise_common::protobuf::decode::Kind;
use zonewise_common::protobuf::kinds::{ENDPOINT_SLICE, LEASE, NODE, POD, SERVICE};
use zonewise_common::proxy_report::ProxyReport;
use zonewise_common::testing::arbitrary::{Random, object, scattered};
use zonewise_common::testing::protobuf::encode;
use zonewise_common::testing::{
    full_lease, full_node, full_pod, full_service, full_slice, null_fields,
};
use zonewise_routing::{NodeLocation, ObjectReader};
use zonewise_slices::node::Node;
use zonewise_slices::pod::Pod;
use zonewise_slices::service::Service;
use zonewise_slices::slice::Slice;
use zonewise_testbed::objects::namespace;
use zonewise_testbed::{Cluster, eventually};

/// The structs of an object, as text that shows every field.
type Read = fn(Encoded<'_>) -> Result<String, DecodeError>;

/// A kind, and everything that is read from its objects.
const KINDS: [(&Kind, Read); 5] = [
    (&POD, |object| Ok(format!("{:?}", object.decode::<Pod>()?))),
    (&NODE, |object| Ok(format!("{:?}", object.decode::<Node>()?))),
    (&LEASE, |object| Ok(format!("{:?}", object.decode::<ProxyReport>()?))),
    (&SERVICE, |object| {
        let routed = reader().decode_service(object)?;
        Ok(format!("{routed:?} {:?}", object.decode::<Service>()?))
    }),
    (&ENDPOINT_SLICE, |object| {
        let routed = reader().decode_slice(object)?;
        Ok(format!("{routed:?} {:?}", object.decode::<Slice>()?))
    }),
];

fn reader() -> ObjectReader {
    ObjectReader::new(NodeLocation::new("n1", Some("a"), Some("r")))
}

proptest! {
    /// Five objects in each case: with fields set and absent, lists of any length, values that are out of range or
    /// unknown, written as Go writes them and as another encoder may.
    #[test]
    fn random_objects_are_the_same_in_both_forms(seed in any::<u64>()) {
        let mut random = Random(seed);
        for (kind, read) in KINDS {
            let object = object(&mut random, kind.fields);
            let json = object.to_string();
            let expected = read(Encoded::Json(&json)).map_err(drop);
            let messages =
                [encode(kind.fields, &object), scattered(&mut random, kind.fields, &object)];
            for message in messages {
                let found = read(Encoded::Protobuf(kind, &message));
                prop_assert_eq!(found.map_err(drop), expected.clone(), "{} {}", kind.name, json);
            }
        }
    }

    /// Bytes that are missing or changed give an object or an error, and the name is found if it is still there.
    #[test]
    fn damaged_objects_are_errors_and_nothing_worse(seed in any::<u64>(), cut in any::<bool>()) {
        let mut random = Random(seed);
        for (kind, read) in KINDS {
            let object = object(&mut random, kind.fields);
            let mut message = encode(kind.fields, &object);
            let at = random.below(message.len());
            match cut {
                true => message.truncate(at),
                false => message[at] ^= 1 << random.below(8),
            }
            let damaged = Encoded::Protobuf(kind, &message);
            if let Err(error) = read(damaged) {
                prop_assert!(!error.to_string().is_empty());
            }
            let metadata = encode(&kind.fields[..1], &object).len();
            if at >= metadata {
                let found = damaged.metadata::<Value>().unwrap();
                prop_assert_eq!(&found["name"], &object["metadata"]["name"]);
            }
        }
    }
}

/// Everything that a watch has delivered.
#[derive(Default)]
struct Seen {
    objects: BTreeMap<Key, String>,
    unreadable: Vec<String>,
    json: usize,
    protobuf: usize,
}

struct Collector {
    read: Read,
    seen: Arc<Mutex<Seen>>,
}

struct Collected(Key, String);

impl Keyed for Collected {
    fn key(&self) -> Key {
        self.0.clone()
    }
}

impl WatchListener for Collector {
    type Object = Collected;

    fn read(&self, object: Encoded<'_>) -> Result<Collected, DecodeError> {
        let metadata: Value = object.metadata()?;
        let name = |field: &str| Name::from(metadata[field].as_str().unwrap_or_default());
        let mut seen = self.seen.lock();
        match object {
            Encoded::Json(_) => seen.json += 1,
            Encoded::Protobuf(..) => seen.protobuf += 1,
        }
        Ok(Collected((name("namespace"), name("name")), (self.read)(object)?))
    }

    fn apply(&mut self, Collected(key, text): Collected) {
        self.seen.lock().objects.insert(key, text);
    }

    fn unreadable(&mut self, key: &Key, error: &str) {
        self.seen.lock().unreadable.push(format!("{key:?}: {error}"));
    }

    fn delete(&mut self, _: u64, key: &Key) {
        self.seen.lock().objects.remove(key);
    }

    fn listed(&mut self, _: u64, keys: &BTreeSet<Key>) {
        self.seen.lock().objects.retain(|key, _| keys.contains(key));
    }

    fn health(&mut self, _: Result<(), &ApiError>) {}
}

/// Objects that a server accepts: one with every field, and one without each of the fields.
fn objects(full: &Value) -> Vec<Value> {
    let mut full = full.clone();
    for assigned in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
        full["metadata"].as_object_mut().unwrap().remove(assigned);
    }
    if full["kind"] == "Service" {
        // The server assigns these, so that many such Services can exist.
        let spec = full["spec"].as_object_mut().unwrap();
        for field in ["clusterIP", "clusterIPs", "healthCheckNodePort"] {
            spec.remove(field);
        }
        spec["ports"][0].as_object_mut().unwrap().remove("nodePort");
    }
    let absent = null_fields(&full).into_iter().map(|case| case.absent);
    let all = std::iter::once(full.clone()).chain(absent).enumerate();
    let named = |(index, mut object): (usize, Value)| {
        object["metadata"]["name"] = format!("forms-{index}").into();
        object
    };
    all.map(named).collect()
}

/// Creates the objects one by one. The server refuses some of them, or their status, because a field is required; how
/// many it has is returned.
async fn create(cluster: &Cluster, full: &Value) -> usize {
    for object in objects(full) {
        let _ = cluster.create(&[object]).await;
    }
    let stored = cluster.list(full["kind"].as_str().unwrap(), None).await.unwrap();
    stored.iter().filter(|object| is_ours(object["metadata"]["name"].as_str().unwrap())).count()
}

fn is_ours(name: &str) -> bool {
    name.starts_with("forms-")
}

struct Watched {
    name: &'static str,
    forms: [Arc<Mutex<Seen>>; 2],
}

impl Watched {
    fn start(client: &kube::Client, tasks: &mut JoinSet<()>, resource: &Resource) -> Self {
        let read =
            KINDS.iter().find(|(kind, _)| resource.kind.unwrap().name == kind.name).unwrap().1;
        let forms = [ContentType::Json, ContentType::Protobuf].map(|form| {
            let seen = Arc::<Mutex<Seen>>::default();
            let listener = Collector { read, seen: Arc::clone(&seen) };
            tasks.spawn(watch::follow(client.clone(), resource.clone().encoded_as(form), listener));
            seen
        });
        Self { name: resource.name, forms }
    }

    /// Waits until both forms have delivered the same, which satisfies `wanted`.
    async fn agree(&self, wanted: impl Fn(&BTreeMap<Key, String>) -> bool) {
        eventually(|| async {
            let [json, protobuf] = self.forms.each_ref().map(|seen| seen.lock());
            assert_eq!((&json.unreadable, &protobuf.unreadable), (&vec![], &vec![]));
            match json.objects == protobuf.objects && wanted(&json.objects) {
                true => Ok(()),
                false => {
                    Err(format!("{}: {}", self.name, difference(&json.objects, &protobuf.objects)))
                }
            }
        })
        .await;
        let [json, protobuf] = self.forms.each_ref().map(|seen| seen.lock());
        assert_eq!((json.protobuf, protobuf.json), (0, 0), "{} in the other form", self.name);
        assert!(json.json > 0 && protobuf.protobuf > 0, "{}", self.name);
    }
}

/// The first object that differs, or how many there are.
fn difference(json: &BTreeMap<Key, String>, protobuf: &BTreeMap<Key, String>) -> String {
    let different = json.iter().find(|(key, text)| protobuf.get(*key) != Some(*text));
    match different {
        Some((key, text)) => format!("{text}\nin JSON, in protobuf\n{:?}", protobuf.get(key)),
        None => format!("{} objects in JSON, {} in protobuf", json.len(), protobuf.len()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_a_real_server_sends_is_the_same_in_both_forms() {
    let cluster = Cluster::start().await.unwrap();
    cluster.create(&[namespace("shop"), namespace("zonewise-system")]).await.unwrap();
    let (client, mut tasks) = (cluster.admin().unwrap(), JoinSet::new());
    let leases = Resource::all("leases", "/apis/coordination.k8s.io/v1/leases", &LEASE);
    let rows = [
        (watch::NODES, full_node()),
        (watch::PODS, full_pod()),
        (watch::SERVICES, full_service()),
        (watch::SLICES, full_slice()),
        (leases, full_lease()),
    ];
    // Of every other kind the objects come as events, of the rest in a list.
    for (index, (resource, full)) in rows.into_iter().enumerate() {
        let count = objects(&full).len();
        let start = |tasks: &mut JoinSet<()>| Watched::start(&client, tasks, &resource);
        let early = (index % 2 == 0).then(|| start(&mut tasks));
        let accepted = create(&cluster, &full).await;
        let watched = early.unwrap_or_else(|| start(&mut tasks));
        assert!(accepted * 2 > count, "{}: {accepted} of {count} accepted", resource.name);
        let ours = |objects: &BTreeMap<Key, String>| {
            objects.keys().filter(|(_, name)| is_ours(name)).count()
        };
        watched.agree(|objects| ours(objects) == accepted).await;
        let first = objects(&full).swap_remove(0);
        // A Pod stays with a time of deletion until it is deleted without a grace period.
        cluster.objects().unwrap().terminate(std::slice::from_ref(&first)).await.unwrap();
        if first["kind"] == "Pod" {
            watched.agree(|objects| format!("{objects:?}").contains("terminating: true")).await;
            cluster.delete(&[first]).await.unwrap();
        }
        watched.agree(|objects| ours(objects) == accepted - 1).await;
    }
}
