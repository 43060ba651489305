//! Scenarios: what the cluster is, what happens in it, and what is expected.
