// CoreDNS with the plugins that a cluster's DNS and Kubernetes' tests need, and no others: those for the DNS services of
// clouds alone would take longer to build than all the rest.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	// The order in which a request passes through the plugins.
	dnsserver.Directives = []string{"errors", "log", "health", "ready", "cache", "loadbalance", "hosts", "kubernetes"}
	coremain.Run()
}
