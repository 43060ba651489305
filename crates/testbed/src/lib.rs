//! A real kube-apiserver with etcd on loopback, for tests and benchmarks.
