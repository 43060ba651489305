// Command hints measures the reference on the Service that crates/slices/benches/hints.rs plans, and prints
// nanoseconds per round.
//
//	hints first hints ENDPOINTS      assigns hints to the slices of a Service that has none yet
//	hints first whole ENDPOINTS      the same with everything around it: endpoints from Pods, comparing, packing
//	hints changed hints ENDPOINTS    one Pod has been replaced, another in every round: hints for the slice that is written
//	hints changed whole ENDPOINTS    the same with everything around it
//
// The client answers every write at once with what was written.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/endpointslice"
	"k8s.io/endpointslice/topologycache"
	"k8s.io/endpointslice/util"
	"k8s.io/klog/v2"
)

const (
	perSlice = 100
	// How long one call of this program measures.
	period = 300 * time.Millisecond
	// How many Pods are replaced in turn.
	turns = 15
)

var logger = klog.Background()

// Three zones with 4, 5 and 6 CPUs.
func nodes() []*corev1.Node {
	list := []*corev1.Node{}
	for index, zone := range []string{"a", "b", "c"} {
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

func service() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "ns", UID: "00000000-0000-4000-8000-000000000000",
			Annotations: map[string]string{corev1.AnnotationTopologyMode: "Auto"},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP:  "10.96.0.1",
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Selector:   map[string]string{"app": "web"},
			Ports:      []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
}

// The order of addresses is not that of names.
func pod(number int, zone string) *corev1.Pod {
	address := number * 7919 % 60_000
	ip := fmt.Sprintf("10.0.%d.%d", address/250, address%250)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("pod-%05d", number), Namespace: "ns",
			UID: types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", number+1)),
		},
		Spec: corev1.PodSpec{NodeName: "node-" + zone},
		Status: corev1.PodStatus{
			PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

// Two thirds of the Pods are in the first zone, so that many have to serve another one.
func zone(number int) string {
	if number%3 == 2 {
		return []string{"b", "c"}[number%2]
	}
	return "a"
}

func pods(count int) []*corev1.Pod {
	list := []*corev1.Pod{}
	for number := 0; number < count; number++ {
		list = append(list, pod(number, zone(number)))
	}
	return list
}

// The same Pods with one replaced by another in its zone. All zones have their turn.
func oneReplaced(list []*corev1.Pod, turn int) []*corev1.Pod {
	place := turn * 67 % len(list)
	replaced := append(append([]*corev1.Pod{}, list[:place]...), list[place+1:]...)
	return append(replaced, pod(len(list), zone(place)))
}

// client keeps what is written. Of the interfaces that it implements, the reconciler calls no other methods.
type client struct {
	kubernetes.Interface
	discoveryclient.DiscoveryV1Interface
	discoveryclient.EndpointSliceInterface
	created, updated []*discovery.EndpointSlice
}

func (c *client) DiscoveryV1() discoveryclient.DiscoveryV1Interface { return c }

func (c *client) EndpointSlices(string) discoveryclient.EndpointSliceInterface { return c }

func (c *client) Create(
	_ context.Context, slice *discovery.EndpointSlice, _ metav1.CreateOptions,
) (*discovery.EndpointSlice, error) {
	slice.Name = fmt.Sprintf("%s%05d", slice.GenerateName, len(c.created))
	slice.UID = types.UID(slice.Name)
	c.created = append(c.created, slice)
	return slice, nil
}

func (c *client) Update(
	_ context.Context, slice *discovery.EndpointSlice, _ metav1.UpdateOptions,
) (*discovery.EndpointSlice, error) {
	c.updated = append(c.updated, slice)
	return slice, nil
}

func (c *client) forget() { c.created, c.updated = nil, nil }

type silence struct{}

func (silence) Event(runtime.Object, string, string, string)                                      {}
func (silence) Eventf(runtime.Object, string, string, string, ...any)                             {}
func (silence) AnnotatedEventf(runtime.Object, map[string]string, string, string, string, ...any) {}

// world is a reconciler with all that it needs.
type world struct {
	client     *client
	topology   *topologycache.TopologyCache
	reconciler *endpointslice.Reconciler
}

func newWorld() *world {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, node := range nodes() {
		check(indexer.Add(node))
	}
	w := &world{client: &client{}, topology: topologycache.NewTopologyCache()}
	w.topology.SetNodes(logger, nodes())
	w.reconciler = endpointslice.NewReconciler(
		w.client, corelisters.NewNodeLister(indexer), perSlice, util.NewEndpointSliceTracker(), w.topology, silence{},
		"endpointslice-controller.k8s.io")
	return w
}

func (w *world) reconcile(pods []*corev1.Pod, existing []*discovery.EndpointSlice) {
	w.client.forget()
	check(w.reconciler.Reconcile(logger, service(), pods, existing, time.Time{}))
}

// What is assigned hints: the slices to write, and those that stay.
func (w *world) hints(create, update, unchanged []*discovery.EndpointSlice) time.Duration {
	info := &topologycache.SliceInfo{
		ServiceKey: "ns/web", AddressType: discovery.AddressTypeIPv4,
		ToCreate: withoutHints(create), ToUpdate: withoutHints(update),
		Unchanged: append([]*discovery.EndpointSlice{}, unchanged...),
	}
	start := time.Now()
	w.topology.AddHints(logger, info)
	return time.Since(start)
}

func withoutHints(slices []*discovery.EndpointSlice) []*discovery.EndpointSlice {
	copies := []*discovery.EndpointSlice{}
	for _, slice := range slices {
		bare := slice.DeepCopy()
		for index := range bare.Endpoints {
			bare.Endpoints[index].Hints = nil
		}
		copies = append(copies, bare)
	}
	return copies
}

// The slices that are not among the updated ones.
func others(slices, updated []*discovery.EndpointSlice) []*discovery.EndpointSlice {
	names := map[string]bool{}
	for _, slice := range updated {
		names[slice.Name] = true
	}
	rest := []*discovery.EndpointSlice{}
	for _, slice := range slices {
		if !names[slice.Name] {
			rest = append(rest, slice)
		}
	}
	return rest
}

// rounds prepares a situation. Each call of what it returns is one round, and tells its time.
func rounds(situation, part string, endpoints int) func(int) time.Duration {
	w := newWorld()
	before := pods(endpoints)
	w.reconcile(before, nil)
	stored := w.client.created
	if situation == "first" {
		return w.round(part, before, nil, stored, nil)
	}
	var variants []func(int) time.Duration
	for turn := range turns {
		after := oneReplaced(before, turn)
		w.reconcile(after, stored)
		if created, updated := len(w.client.created), len(w.client.updated); created != 0 || updated != 1 {
			check(fmt.Errorf("one slice was to be written, not %d and %d", created, updated))
		}
		variants = append(variants, w.round(part, after, stored, nil, w.client.updated))
	}
	return func(turn int) time.Duration { return variants[turn%turns](turn) }
}

func (w *world) round(
	part string, pods []*corev1.Pod, stored, create, update []*discovery.EndpointSlice,
) func(int) time.Duration {
	if part == "hints" {
		unchanged := others(stored, update)
		return func(int) time.Duration { return w.hints(create, update, unchanged) }
	}
	return func(int) time.Duration {
		start := time.Now()
		w.reconcile(pods, stored)
		return time.Since(start)
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "hints:", err)
		os.Exit(1)
	}
}

func main() {
	usage := fmt.Errorf("usage: hints first|changed hints|whole ENDPOINTS")
	if len(os.Args) != 4 {
		check(usage)
	}
	endpoints, err := strconv.Atoi(os.Args[3])
	if err != nil {
		check(usage)
	}
	round := rounds(os.Args[1], os.Args[2], endpoints)
	var spent time.Duration
	count := 0
	for begin := time.Now(); time.Since(begin) < period || count < 10; count++ {
		spent += round(count)
	}
	fmt.Printf("%.1f\n", float64(spent.Nanoseconds())/float64(count))
}
