// Command hints measures how long the reference takes to assign hints to new slices, without
// building, comparing or writing them. Prints nanoseconds per endpoint.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/endpointslice/topologycache"
	"k8s.io/klog/v2"
)

var zones = []string{"a", "b", "c"}

const perSlice = 100

func nodes() []*corev1.Node {
	list := []*corev1.Node{}
	for index, zone := range zones {
		list = append(list, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name:   "node-" + zone,
				Labels: map[string]string{corev1.LabelTopologyZone: zone},
			},
			Status: corev1.NodeStatus{
				Allocatable: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse(strconv.Itoa(4 + index)),
				},
				Conditions: []corev1.NodeCondition{{
					Type: corev1.NodeReady, Status: corev1.ConditionTrue,
				}},
			},
		})
	}
	return list
}

// Two thirds of the endpoints are in the first zone, so that many have to move.
func slices(endpoints int) []*discovery.EndpointSlice {
	list := []*discovery.EndpointSlice{}
	ready := true
	for number := 0; number < endpoints; number++ {
		if number%perSlice == 0 {
			list = append(list, &discovery.EndpointSlice{AddressType: discovery.AddressTypeIPv4})
		}
		zone := zones[0]
		if number%3 == 2 {
			zone = zones[1+number%2]
		}
		last := list[len(list)-1]
		last.Endpoints = append(last.Endpoints, discovery.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.0.%d.%d", number/250, number%250)},
			Conditions: discovery.EndpointConditions{Ready: &ready},
			Zone:       &zone,
		})
	}
	return list
}

func main() {
	endpoints, err := strconv.Atoi(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "usage: hints ENDPOINTS")
		os.Exit(2)
	}
	cache := topologycache.NewTopologyCache()
	cache.SetNodes(klog.Background(), nodes())
	rounds := 2_000_000 / endpoints
	var spent time.Duration
	for round := 0; round < rounds; round++ {
		info := &topologycache.SliceInfo{
			ServiceKey:  "ns/service",
			AddressType: discovery.AddressTypeIPv4,
			ToCreate:    slices(endpoints),
		}
		start := time.Now()
		cache.AddHints(klog.Background(), info)
		spent += time.Since(start)
	}
	fmt.Printf("%.1f\n", float64(spent.Nanoseconds())/float64(rounds*endpoints))
}
