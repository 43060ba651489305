//go:build tools

// Package reference pins Helm, which installs the chart.
package reference

import _ "helm.sh/helm/v3/cmd/helm"
