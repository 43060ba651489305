//go:build tools

// Package reference pins the etcd that the tests and benchmarks run.
package reference

import (
	_ "go.etcd.io/etcd/server/v3"
)
