//! The control plane's shell: queue, reconcile, conditions, events, metrics.
