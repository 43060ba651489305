//go:build tools

// Package reference pins the programs of Kubernetes that make a cluster, and Kubernetes' end-to-end tests.
//
// They have a module of their own, so that the programs that `make test` needs are not built anew when these change.
package reference

import (
	_ "github.com/onsi/ginkgo/v2/ginkgo"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubelet"
	_ "k8s.io/kubernetes/test/e2e"
	_ "k8s.io/kubernetes/test/images/agnhost"
	_ "k8s.io/kubernetes/test/images/regression-issue-74839"
)
