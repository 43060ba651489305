//go:build tools

// Package reference pins the programs of Kubernetes that the tests and benchmarks run beside ours.
package reference

import (
	_ "k8s.io/endpointslice/topologycache"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-proxy"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
