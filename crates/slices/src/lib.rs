//! Computes which EndpointSlices a Service needs: Pods, Services, nodes and stored slices go in, a plan
//! of writes comes out. Everything is pure: no I/O, no clock, no Kubernetes client.
//!
//! ```text
//!  node service pod slice   Kubernetes JSON ⇄ small structs with only the fields that are used
//!  labels wire quantity     what these have in common
//!  routing_keys             the annotations that request routing, and keys that look like one
//!  requested                which routing a Service requests, and which of its keys wins
//!  desired ports            Pods ─► endpoints and the ports they serve
//!  evacuation               endpoints of zones that are being emptied, and whether the others can take it
//!  stored                   stored slices, beside the desired endpoints that they hold
//!  numbers                  zones as small numbers, for decide
//!  weights                  what endpoints count for, where they do not count the same
//!  decide                   heuristic ─► hints, subsets or zone shares of each endpoint
//!                           (input: the numbers for the heuristic; by_numbers: the reason that they give)
//!  pack                     endpoints ─► slices, with as few writes as possible
//!  guard                    plans as an allocation that an admission policy applies (`--mode guard`)
//!  upstream                 hints as the reference assigns them (`--compat upstream`)
//!  plan                     all of these together
//!  settings                 the controller's settings that the above depend on
//! ```
//!
//! "The reference" is the EndpointSlice controller of kube-controller-manager 1.36:
//!
//! ```text
//!  https://github.com/kubernetes/kubernetes/tree/v1.36.4/pkg/controller/endpointslice
//!  https://github.com/kubernetes/kubernetes/tree/v1.36.4/staging/src/k8s.io/endpointslice
//! ```

mod decide;
mod desired;
pub mod evacuation;
pub mod guard;
pub mod labels;
pub mod node;
mod numbers;
mod pack;
pub mod plan;
pub mod pod;
pub mod pod_metrics;
mod ports;
mod quantity;
pub mod ready;
pub mod requested;
pub mod routing_keys;
pub mod service;
pub mod settings;
pub mod slice;
mod stored;
pub mod upstream;
pub mod weights;
pub mod wire;
