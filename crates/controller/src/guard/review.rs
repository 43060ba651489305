//! The answer of the webhook: what the API server asks about a slice, and the hints that the slice gets. Pure.
//!
//! ```text
//!  AdmissionReview ─► slice, and the ZoneAllocation called like its Service ─► JSON patch (the policy's rule)
//!            └─ anything else ─► allowed, without a patch
//! ```
//!
//! Every answer allows the write. What cannot be read is written as it is, and so is a slice of more endpoints than the
//! API server accepts: any program that reaches the webhook can send one.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use zonewise_common::keys::MANAGED_BY;
use zonewise_common::lenient::lenient;
use zonewise_common::name::{Key, Name};
use zonewise_slices::guard::{PatchStep, ZoneAllocation};
use zonewise_slices::settings::REFERENCE_MANAGED_BY as BUILT_IN;
use zonewise_slices::slice::Slice;

/// The most endpoints of a slice that the API server accepts (`maxEndpoints` in
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/apis/discovery/validation/validation.go>;
/// the field's documentation in `discovery.k8s.io/v1` says the same).
const MOST_ENDPOINTS: usize = 1000;

/// What became of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The slice gets other hints.
    Patched,
    /// The slice is as it should be, or none of ours.
    Unchanged,
    /// It cannot be read.
    Malformed,
    /// The slice has more endpoints than the API server accepts.
    Oversized,
}

impl Outcome {
    pub(crate) const ALL: [Self; 4] =
        [Self::Patched, Self::Unchanged, Self::Malformed, Self::Oversized];

    /// Its name in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Patched => "patched",
            Self::Unchanged => "unchanged",
            Self::Malformed => "malformed",
            Self::Oversized => "oversized",
        }
    }
}

#[derive(Default, Deserialize)]
struct Review<'a> {
    #[serde(borrow)]
    request: Request<'a>,
}

#[derive(Default, Deserialize)]
struct Request<'a> {
    uid: Box<str>,
    #[serde(default, deserialize_with = "lenient")]
    namespace: Name,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    api_version: &'static str,
    kind: &'static str,
    response: Response,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: Box<str>,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
}

/// The answer of the webhook to a review. `allocation` knows the stored allocations.
pub fn answer(
    document: &[u8],
    allocation: impl Fn(&Key) -> Option<ZoneAllocation>,
) -> (Vec<u8>, Outcome) {
    let Ok(Review { request }) = serde_json::from_slice(document) else {
        return (written("".into(), &[]), Outcome::Malformed);
    };
    let (steps, outcome) = match steps(&request, allocation) {
        Err(outcome) => (Vec::new(), outcome),
        Ok(steps) if steps.is_empty() => (steps, Outcome::Unchanged),
        Ok(steps) => (steps, Outcome::Patched),
    };
    (written(request.uid, &steps), outcome)
}

/// What is to be changed about the slice of a request. An error if it has none that can be read, or a larger one than
/// there can be.
fn steps(
    request: &Request<'_>,
    allocation: impl Fn(&Key) -> Option<ZoneAllocation>,
) -> Result<Vec<PatchStep>, Outcome> {
    let object = request.object.ok_or(Outcome::Malformed)?.get();
    // Counted before they are read, because an endpoint takes a hundred times the memory of its three bytes.
    let Size { endpoints: Count(endpoints) } = read(object)?;
    if endpoints > MOST_ENDPOINTS {
        return Err(Outcome::Oversized);
    }
    let slice: Slice = read(object)?;
    let is_built_in = slice.labels.get(MANAGED_BY) == Some(BUILT_IN);
    let service = slice.service().filter(|_| is_built_in);
    let key = service.map(|service| (Name::clone(&request.namespace), Name::from(service)));
    let allocation = key.and_then(|key| allocation(&key));
    Ok(allocation.map_or_else(Vec::new, |allocation| allocation.patch(&slice)))
}

fn read<'a, T: Deserialize<'a>>(object: &'a str) -> Result<T, Outcome> {
    serde_json::from_str(object).map_err(|_| Outcome::Malformed)
}

/// How many endpoints a slice has.
#[derive(Deserialize)]
struct Size {
    #[serde(default, deserialize_with = "lenient")]
    endpoints: Count,
}

/// The length of a list.
#[derive(Default)]
struct Count(usize);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Counter)
    }
}

struct Counter;

impl<'de> Visitor<'de> for Counter {
    type Value = Count;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Count, A::Error> {
        let mut count = 0;
        while list.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(Count(count))
    }
}

fn written(uid: Box<str>, steps: &[PatchStep]) -> Vec<u8> {
    let patch = (!steps.is_empty())
        .then(|| serde_json::to_vec(steps).ok())
        .flatten()
        .map(|patch| STANDARD.encode(patch));
    let patch_type = patch.as_ref().map(|_| "JSONPatch");
    let answer = Answer {
        api_version: "admission.k8s.io/v1",
        kind: "AdmissionReview",
        response: Response { uid, allowed: true, patch_type, patch },
    };
    serde_json::to_vec(&answer).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use zonewise_slices::guard::Others;

    /// A review of a slice with two endpoints of zone a, the second of which has hints to b.
    fn review(manager: &str, service: &str) -> Value {
        let hints = json!({ "forZones": [{ "name": "b" }] });
        json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "7", "namespace": "shop", "operation": "CREATE",
                "object": {
                    "metadata": { "generateName": "web-", "labels": {
                        MANAGED_BY: manager, "kubernetes.io/service-name": service,
                    } },
                    "addressType": "IPv4",
                    "endpoints": [
                        { "addresses": ["10.0.0.1"], "zone": "a" },
                        { "addresses": ["10.0.0.2"], "zone": "a", "hints": hints },
                    ],
                },
            },
        })
    }

    /// The answer by an allocation of `shop/web`, with its patch decoded.
    fn answered(document: &[u8], others: Others) -> (Value, Outcome) {
        let allocation = |key: &Key| {
            let web = ZoneAllocation { others, ..ZoneAllocation::default() };
            (*key == ("shop".into(), "web".into())).then_some(web)
        };
        let (answer, outcome) = answer(document, allocation);
        let mut answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(
            (&answer["apiVersion"], &answer["kind"]),
            (&json!("admission.k8s.io/v1"), &json!("AdmissionReview"))
        );
        if let Some(patch) = answer["response"]["patch"].as_str() {
            let patch = STANDARD.decode(patch).unwrap();
            answer["response"]["patch"] = serde_json::from_slice(&patch).unwrap();
        }
        (answer["response"].take(), outcome)
    }

    #[test]
    fn slices_of_services_with_an_allocation_get_its_hints_and_others_stay() {
        let to_a = json!({ "forZones": [{ "name": "a" }] });
        let own_zone = json!([
            { "op": "add", "path": "/endpoints/0/hints", "value": to_a },
            { "op": "add", "path": "/endpoints/1/hints", "value": to_a },
        ]);
        let none = json!([{ "op": "remove", "path": "/endpoints/1/hints" }]);
        let rows = [
            ("own zone", BUILT_IN, "web", Others::OwnZone, Some(own_zone)),
            ("no hints", BUILT_IN, "web", Others::NoHints, Some(none)),
            ("nothing to change", BUILT_IN, "web", Others::AsWritten, None),
            ("another Service", BUILT_IN, "api", Others::OwnZone, None),
            ("a slice of somebody else", "somebody", "web", Others::OwnZone, None),
            ("a slice without a Service", BUILT_IN, "", Others::OwnZone, None),
        ];
        for (what, manager, service, others, patch) in rows {
            let document = review(manager, service).to_string();
            let expected = match patch {
                Some(patch) => {
                    let response = json!({ "uid": "7", "allowed": true, "patchType": "JSONPatch", "patch": patch });
                    (response, Outcome::Patched)
                }
                None => (json!({ "uid": "7", "allowed": true }), Outcome::Unchanged),
            };
            assert_eq!(answered(document.as_bytes(), others), expected, "{what}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_allowed_as_it_is() {
        let mut without_object = review(BUILT_IN, "web");
        without_object["request"]["object"].take();
        let mut odd = review(BUILT_IN, "web");
        odd["request"]["object"]["endpoints"] = json!("none");
        let rows = [
            (String::new(), ""),
            ("no JSON".to_owned(), ""),
            ("{}".to_owned(), ""),
            ("[".repeat(100_000), ""),
            (json!({ "request": {} }).to_string(), ""),
            (without_object.to_string(), "7"),
            (odd.to_string(), "7"),
        ];
        for (document, uid) in rows {
            let expected = (json!({ "uid": uid, "allowed": true }), Outcome::Malformed);
            assert_eq!(answered(document.as_bytes(), Others::OwnZone), expected, "{document:.40}");
        }
    }

    #[test]
    fn a_slice_of_more_endpoints_than_there_can_be_is_allowed_as_it_is() {
        let with = |count: usize| {
            let mut review = review(BUILT_IN, "web");
            let one = review["request"]["object"]["endpoints"][0].clone();
            review["request"]["object"]["endpoints"] = vec![one; count].into();
            answered(review.to_string().as_bytes(), Others::OwnZone)
        };
        let (response, outcome) = with(MOST_ENDPOINTS);
        let patched = response["patch"].as_array().map(Vec::len);
        assert_eq!((patched, outcome), (Some(MOST_ENDPOINTS), Outcome::Patched));
        let expected = (json!({ "uid": "7", "allowed": true }), Outcome::Oversized);
        assert_eq!(with(MOST_ENDPOINTS + 1), expected);
    }
}
