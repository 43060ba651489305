//! Pods, Services and existing slices in; a plan of EndpointSlice writes out. Pure.
