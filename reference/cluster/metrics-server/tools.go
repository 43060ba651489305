//go:build tools

// Package reference pins metrics-server, which tells what Pods use.
package reference

import _ "sigs.k8s.io/metrics-server/cmd/metrics-server"
