//! The table of all reasons. A new reason is one more entry here; everything else follows from it.
//!
//! ```text
//!  Name { figure: type, … } => Outcome,       without braces if there are no figures
//!      "what happened",
//!      "what to do about it",
//!      figures(figure, …) expression;         the figures in words, if a sentence shows any
//! ```

use super::define::{define_codes, define_reason_type, define_reasons};
use super::{Entry, Fault, NOTHING_TO_DO, Outcome};
use crate::words::{counted, percent};

define_reasons! {
    // What a decision about a Service says.
    decisions {
        ClusterWide => InForce,
            "every zone uses every endpoint",
            "nothing to do; choose another heuristic to keep traffic in its zone";
        OwnZone { zones_without_endpoints: u64 } => InForce,
            "each zone uses its own endpoints; zones without any use all",
            "watch for overload: this choice has no capacity safeguard",
            figures(zones_without_endpoints) without_endpoints(zones_without_endpoints);
        OwnNode { zones_without_endpoints: u64, endpoints_without_zone: u64 } => InForce,
            "each node uses its own endpoints, then its zone's, then all",
            "watch for overload: this choice has no capacity safeguard",
            figures(zones_without_endpoints, endpoints_without_zone)
                own_node(zones_without_endpoints, endpoints_without_zone);
        ZoneRequired { zones_without_endpoints: u64 } => InForce,
            "each zone uses its own endpoints; a port or address family that has none there uses those of all zones",
            "run at least one endpoint in every zone that has nodes",
            figures(zones_without_endpoints) without_endpoints(zones_without_endpoints);
        GroupsAssigned => InForce,
            "endpoints are grouped by the evaluation tool's algorithm",
            NOTHING_TO_DO;
        HintsAssigned { moved: u64 } => InForce,
            "every endpoint is hinted to a zone in proportion to capacity",
            NOTHING_TO_DO,
            figures(moved) serve_another(moved, "zone");
        HintsKept { highest_overload: f64, limit: f64 } => InForce,
            "the hints already present still keep every zone below the limit",
            NOTHING_TO_DO,
            figures(highest_overload, limit) of_at_most(highest_overload, limit);
        SubsetsAssigned { moved: u64 } => InForce,
            "endpoints are divided into one subset per zone or region",
            NOTHING_TO_DO,
            figures(moved) serve_another(moved, "zone or region");
        SubsetsKept { highest_overload: f64, limit: f64 } => InForce,
            "the subsets already present still keep every zone or region below the limit",
            NOTHING_TO_DO,
            figures(highest_overload, limit) of_at_most(highest_overload, limit);
        SharesBalanced { in_zone: f64, max_overload: f64 } => InForce,
            "zone shares keep the load of every endpoint within what is allowed",
            NOTHING_TO_DO,
            figures(in_zone, max_overload) within_fair_share(in_zone, max_overload);
        HintsBalanced { in_zone: f64, max_overload: f64 } => InForce,
            "every endpoint is hinted to one zone or to several, with as even a load as hints can have",
            NOTHING_TO_DO,
            figures(in_zone, max_overload) within_fair_share(in_zone, max_overload);
        ExpressionApplied => InForce,
            "endpoints are assigned as a custom expression says",
            "watch for overload: an expression has no capacity safeguard but its own";
        NoEndpoints => Fallback,
            "the Service has no ready endpoint",
            "check that the selector matches Pods and that they become ready";
        NodeInformationMissing { nodes: u64 } => Fallback,
            "capacity per zone or region is unknown: a ready worker node lacks the label or allocatable CPU, or there is none",
            "label every worker node with topology.kubernetes.io/zone (for subsets of regions: topology.kubernetes.io/region) and let it report CPU, or set capacity.missingCpu to count-nodes",
            figures(nodes) counted(nodes, "node");
        OneZoneOnly => Fallback,
            "all nodes with capacity are in one zone",
            "nothing to do in a cluster of one zone; otherwise add nodes in another zone";
        TooFewEndpoints { endpoints: u64, zones: u64 } => Fallback,
            "there are fewer endpoints than zones",
            "scale to at least one endpoint per zone, better three, or use balanced",
            figures(endpoints, zones) format!("{}, {}", counted(endpoints, "endpoint"), counted(zones, "zone"));
        TooFewForBalance { endpoints: u64, minimums: u64, limit: f64 } => Fallback,
            "no division of the endpoints keeps every zone's expected overload below the limit",
            "add endpoints where `zonewise explain` says, or use balanced",
            figures(endpoints, minimums, limit) format!(
                "{}; the minimums for {} add up to {minimums}",
                counted(endpoints, "endpoint"),
                percent(limit)
            );
        OverloadTooHigh { zone: u32, expected: f64, present: u64, limit: f64 } => Fallback,
            "a zone or region cannot be brought below the overload threshold",
            "add endpoints, or use balanced",
            figures(expected, present, limit) format!(
                "{expected:.2} endpoints expected, {present} present, limit {}",
                percent(limit)
            );
        BelowStartingThreshold { endpoints: u64, threshold: u64, padding: u64 } => Fallback,
            "there are too few endpoints to start subsetting",
            "scale up, or lower zonewise.dev/starting-threshold or zonewise.dev/padding",
            figures(endpoints, threshold, padding) format!(
                "{}, threshold {threshold}, padding {padding}",
                counted(endpoints, "endpoint")
            );
        HintsGainNothing { limit: f64 } => Fallback,
            "no hints within the allowed overload are better than using every endpoint",
            "add endpoints in zones that have few, allow more overload, or use balanced",
            figures(limit) format!("an overload of {} is allowed", percent(limit));
        EndpointsWithoutZone { endpoints: u64 } => Fallback,
            "an endpoint is on a node without a zone, so proxies would ignore all hints",
            "label the node with topology.kubernetes.io/zone",
            figures(endpoints) counted(endpoints, "endpoint");
        ExpressionFailed { fault: Fault } => Fallback,
            "the custom expression cannot be applied to this Service",
            "correct the expression in the configuration; `zonewise simulate --config` tries it",
            figures(fault) fault.to_string();
        NeverSettles => Failed,
            "the evaluation tool's algorithm would never end on this input",
            "give at least one zone a node";
        TooManyEndpoints { endpoints: u64, limit: u64 } => Failed,
            "this algorithm moves endpoints one at a time and there are too many",
            "use auto or balanced, which have no such limit",
            figures(endpoints, limit) format!("{}, at most {limit}", counted(endpoints, "endpoint"));
        StartingThresholdInvalid => Setting,
            "the starting threshold is not a whole number above 0; the default of 3 per zone is used",
            "correct the annotation zonewise.dev/starting-threshold";
        PaddingInvalid => Setting,
            "the padding is not a whole number; the default of 1 per zone is used",
            "correct the annotation zonewise.dev/padding";
        SharesTooLarge { bytes: u64, limit: u64 } => Fallback,
            "the zone shares do not fit into an annotation",
            "use auto: this many zones cannot be written as shares",
            figures(bytes, limit) format!("{bytes} bytes of {limit}");
        SharesMalformed => Fallback,
            "the zone shares on the slices cannot be read",
            "wait for the controller to write them again; if this persists, look for a second writer of slices";
    }
    // What became of a key on a Service.
    requests {
        ChoiceOverridden => Setting,
            "ignored: another key of the Service takes precedence (topology-mode Auto, then subsetting, then routing-preference, then trafficDistribution)",
            "remove this key, or the one that takes precedence";
        GateOff => Setting,
            "the feature gate for this key is off",
            "turn the gate on in the controller, or remove the key";
        LocalPolicy => Setting,
            "subsetting is ignored because a traffic policy is Local: the subset of a zone need not contain the endpoints of each node in it",
            "remove the subsetting key, or set the policy to Cluster";
        SubsetsNotGuarded => Setting,
            "guard mode cannot make subsets, because the built-in controller writes the slices",
            "ask for a heuristic that gives hints, or run the controller in place of the built-in one";
        SystemNamespaceNotGuarded => Setting,
            "guard mode leaves out Services of the namespace zonewise-system, whose writes must not wait for its webhook",
            "move the Service to another namespace, or set spec.trafficDistribution on it";
        PreferenceReserved => Setting,
            "routing preferences without a domain are reserved; only Default, Spread and Zone exist",
            "write zonewise.dev/<heuristic>, or one of the three";
        PreferenceUnknown => Setting,
            "this routing preference is not known to the controller",
            "use a heuristic that docs/heuristics.md lists, or define it in the configuration of the controller";
        SubsettingUnknown => Setting,
            "this subsetting approach is not known to the controller",
            "use Auto, Require, Region or Random";
        TopologyModeUnknown => Setting,
            "the value of the topology annotation is neither Auto nor Disabled",
            "use Auto or Disabled";
        DemandUnknown => Setting,
            "the value of the demand annotation is neither measured nor model",
            "use measured or model";
        EndpointWeightUnknown => Setting,
            "the value of the endpoint-weight annotation is none of equal, cpu-request and cpu-use",
            "use equal, cpu-request or cpu-use";
        EndpointWeightUnused => Setting,
            "endpoints can count for the CPU that their Pods request or use only where zone shares are written",
            "set zonewise.dev/routing-preference to zonewise.dev/balanced where the zonewise proxy runs, or remove the key";
        FailingZonesUnknown => Setting,
            "the value of the failing-zones annotation is neither spill nor ignore",
            "use spill or ignore";
        FailingZonesUnused => Setting,
            "a zone whose endpoints fail can count for less only where zone shares are written",
            "set zonewise.dev/routing-preference to zonewise.dev/balanced where the zonewise proxy runs, or remove the key";
        FailingZonesNotWatched => Setting,
            "which connections fail is told by the zonewise proxies alone, and the controller does not ask them, so no zone counts for less",
            "set demand.source of the controller to proxies (docs/demand.md), or remove the key";
        FailingZonesTableFull { most: u64 } => Setting,
            "the failed connections of too many Services are to be watched; those of this one are not, so none of its zones counts for less",
            "set zonewise.dev/failing-zones to ignore on Services where it does not matter; this one is watched once there is room",
            figures(most) format!("{} at most", counted(most, "Service"));
        OneRegionOnly => Fallback,
            "all nodes with capacity are in one region, so subsets of regions divide nothing",
            "nothing to do in a cluster of one region; to keep traffic in its zone, ask for subsets of zones or another heuristic";
        NoZoneWithEndpoints => Fallback,
            "no zone with ready worker nodes has an endpoint of its own, so every zone uses all",
            "run endpoints in the zones that have ready worker nodes";
        KeyUnknown => Setting,
            "no such key can be set on a Service",
            "correct the key, or remove it";
        KeyIsLabel => Setting,
            "this key is a label here, and only annotations are read",
            "set it as an annotation, and remove the label";
        KeyNotOnService => Setting,
            "this annotation is read on Services only",
            "set it on the Service";
        ThresholdUnused => Setting,
            "thresholds count only together with the subsetting annotation, set to Auto or Region",
            "remove the key, or set endpointslice.kubernetes.io/subsetting";
        TooManyZonesForHints { zones: u64, limit: u64 } => Fallback,
            "an endpoint would be hinted to more zones than the API allows",
            "choose a heuristic that gives each endpoint fewer zones",
            figures(zones, limit) format!("{} of at most {limit}", counted(zones, "zone"));
    }
    // What conditions and events of controller and proxy say. These have a code and no figures.
    conditions {
        SecondWriter => Setting,
            "another controller writes the slices of this Service too",
            "stop one of the two; to stop the built-in one, start kube-controller-manager with --controllers=*,-endpointslice-controller";
        NoProxyReports => Setting,
            "no proxy reports what it has applied",
            "run the zonewise proxy; with other proxies, ignore this condition";
        ProxiesBehind => Setting,
            "at least one proxy has not applied this yet",
            "wait a moment; if this persists, compare zonewise.dev/applied on the Leases in zonewise-system and check the proxy that is behind";
        ProxiesReady => InForce,
            "every proxy that reports has applied this",
            NOTHING_TO_DO;
        AddressRefused => Setting,
            "the Service does not get an address and port that it asks for",
            "use another address or port; docs/proxy.md#who-has-an-address says which Service gets an address that several ask for";
        RefusedByKernel => Failed,
            "the kernel of a node rejects the rules of this Service; the rules from before stay in place",
            "find the node in zonewise.dev/refused on the Leases in zonewise-system and read the log of its proxy, which tries again every minute";
        FailedToStartServiceHealthcheck => Failed,
            "a node cannot open the health check port of the Service, so load balancers skip the node",
            "stop the other process that listens on spec.healthCheckNodePort on that node; the proxy tries again with the next change";
        HintsEnforced => InForce,
            "an admission policy or webhook keeps these hints in the slices of the built-in controller",
            NOTHING_TO_DO;
        HintsNotEnforced => Failed,
            "slices do not carry the planned hints, so routing follows spec.trafficDistribution there",
            "wait a few seconds; if this persists, read the controller's log, look whether the API server reaches the webhook (TCP port 10273, before Kubernetes 1.36), and look for another policy or webhook that changes slices";
        GuardLimitReached => Failed,
            "guard mode keeps hints for no more names of Services: guard.maxServiceNames are in use, or this namespace has as many as are left",
            "remove the routing preference from Services that can do without it, or raise guard.maxServiceNames; the Service gets a place by itself once one is free";
        FloorRefused => Setting,
            "another program sets spec.trafficDistribution of this Service to a value of its own, which guard mode leaves",
            "let that program set PreferSameZone, or leave the field out";
        FloorWithdrawn => Setting,
            "another program has changed spec.trafficDistribution since guard mode set it; it is not set again",
            "leave the field out of what that program applies; guard mode sets it again once the routing preference was removed and added";
        Accepted => InForce,
            "the routing preference was understood",
            NOTHING_TO_DO;
        ZoneBeingEmptied => Setting,
            "a zone with endpoints of this Service is being emptied, so that other zones serve its clients",
            "nothing to do; `zonewise restore ZONE` gives the zone its traffic back";
        ZoneFailing => Setting,
            "connections to the endpoints of a zone fail more often than elsewhere, so that the zone counts for less and its traffic spills over earlier",
            "find out why these endpoints refuse connections or do not answer although their Pods are ready; the zone counts in full again once they do";
        UseWeighted => InForce,
            "the endpoints of a zone count for less than others where they use more CPU, and for more where they use less",
            NOTHING_TO_DO;
        UseLimited => InForce,
            "the endpoints of a zone count for as little, or for as much, as is allowed, and still do not use as much CPU as others",
            "give the Pods of all zones nodes and CPU limits that are alike, or run more of them where they are busy";
        UseNotCollected => Setting,
            "endpoints are to count by the CPU that they use, but no controller here reads it; all count the same",
            "set demand.podMetrics of the controller to true (docs/demand.md#endpoints-that-use-more-than-others); a dump shows it only with the ConfigMap zonewise-system/zonewise-demand";
        UseNotMeasured => Setting,
            "the metrics API says nothing of too many endpoints of a zone, so that the zone goes back to counting in full",
            "wait if the Pods are new; otherwise look with `kubectl top pods` whether metrics-server sees the nodes of this zone";
        UseTooOld => Setting,
            "what the metrics API says of the endpoints of a zone is too old, so that the zone goes back to counting in full",
            "look at the log of metrics-server, and whether it reaches the nodes of this zone";
        UseImplausible => Setting,
            "what the metrics API says of the endpoints of a zone cannot be, so that the zone goes back to counting in full",
            "compare `kubectl get --raw /apis/metrics.k8s.io/v1beta1/pods` with what runs, and the clocks of metrics-server and controller";
        UseTooSmall => Setting,
            "the endpoints use so little CPU that it says nothing about them, so that all count the same",
            NOTHING_TO_DO;
        UseOfOneZone => Setting,
            "there is only one zone of whose endpoints the use of CPU is known, so that there is nothing to compare with",
            "run endpoints in other zones, and look whether metrics-server sees their nodes";
        UseHeld => InForce,
            "the zone is being emptied, or connections to it fail, so that what its endpoints count for by use stays as it is",
            NOTHING_TO_DO;
        PodMetricsMissing => Setting,
            "the API server has no metrics.k8s.io, so that the CPU use of endpoints is not known",
            "install metrics-server, or another program that serves PodMetrics";
        PodMetricsForbidden => Setting,
            "the controller may not list PodMetrics, so that the CPU use of endpoints is not known",
            "apply deploy/demand/pod-metrics.yaml, or set demand.podMetrics to true in the values of the chart";
        PodMetricsUnavailable => Setting,
            "the metrics API does not answer, or says that it cannot, so that the CPU use of endpoints is not known",
            "look at the APIService v1beta1.metrics.k8s.io and at the Pods of metrics-server";
        PodMetricsTooLarge => Setting,
            "the metrics API answers more than is read, so that the CPU use of endpoints is not known",
            "use this for Services in namespaces with fewer Pods, or a metrics API that answers in pages";
        PodMetricsNonsense => Setting,
            "what answers as the metrics API does not give a list of PodMetrics, so that the CPU use of endpoints is not known",
            "look at the APIService v1beta1.metrics.k8s.io and at what serves it";
        EvacuationMoving => InForce,
            "the zone is being emptied: new connections leave it step by step",
            NOTHING_TO_DO;
        EvacuationEmpty => InForce,
            "new connections do not use the zone",
            "end what still runs there if it has to end, and give the zone its traffic back with `zonewise restore`";
        EvacuationRestored => InForce,
            "the zone gets its traffic back because that was asked for",
            NOTHING_TO_DO;
        EvacuationDeadline => InForce,
            "the zone gets its traffic back because its deadline has passed",
            "nothing to do; ask again with a later deadline to keep the zone empty";
        EvacuationOverLimit => Failed,
            "the other zones cannot take the traffic of the zone",
            "run more endpoints of these Services in other zones, or allow more with --limit";
        EvacuationOthersFailing => Failed,
            "too many endpoints in other zones have stopped being ready since the zone began to be emptied",
            "find out why these Pods are not ready before you try again";
        EvacuationConnectionsFailing => Failed,
            "too many connections to endpoints in other zones are refused or not answered since the zone began to be emptied",
            "find out why these endpoints do not answer although their Pods are ready, and whether a firewall or a network policy keeps their new clients away, before you try again";
        EvacuationMeasuring => InForce,
            "before anything is moved, it is counted which part of the connections to other zones fails",
            "nothing to do; it takes a minute at most";
        EvacuationZoneUnknown => Failed,
            "no node is in this zone",
            "compare the name with the label topology.kubernetes.io/zone of the nodes";
    }
    // What the shares of a Service's zones are taken from, where its demand is measured.
    demand {
        DemandMeasured { connections: u64, weight: f64 } => InForce,
            "the traffic of each zone is estimated from the connections that proxies have counted",
            NOTHING_TO_DO,
            figures(connections, weight) format!(
                "{}, weight {}",
                counted(connections, "connection"),
                percent(weight)
            );
        DemandChangeLimited { weight: f64 } => InForce,
            "demand changes faster, or more often, than zone shares may be rewritten; the shares follow with a delay",
            "nothing to do if demand has jumped once; if this persists, demand goes up and down, and the shares follow its average",
            figures(weight) format!("weight {}", percent(weight));
        DemandOfOneNode { part: f64 } => InForce,
            "one node reports more than three quarters of the connections; the rest above that is estimated from the capacity of nodes",
            "nothing to do if the Service has its clients on one node; otherwise look at the proxy of that node",
            figures(part) percent(part);
        TooFewConnections { connections: u64, enough: u64 } => Setting,
            "too few connections were counted, so the traffic of each zone is estimated mostly from its capacity",
            "nothing to do; measured demand comes into force with more connections",
            figures(connections, enough) format!(
                "{}; with {enough}, measurement and capacity have the same weight",
                counted(connections, "connection")
            );
        DemandTooOld { seconds: u64 } => Setting,
            "no connections were counted for a while, so the traffic of each zone is estimated from its capacity again",
            "nothing to do if the Service is not used; otherwise check that its proxies report",
            figures(seconds) counted(seconds, "second");
        DemandTableFull { most: u64 } => Setting,
            "the table of measured Services is full; shares follow CPU",
            "measure the demand of fewer Services: set the annotation zonewise.dev/demand to model where it does not matter",
            figures(most) format!("{} at most", counted(most, "Service"));
        DemandNotCollected => Setting,
            "measured demand is asked for, but no controller here collects it; shares follow CPU",
            "set demand.source of the controller to proxies or prometheus (docs/demand.md); a dump shows measured demand only with the ConfigMap zonewise-system/zonewise-demand";
        DemandUnreadable => Setting,
            "what the controller has stored of measured demand and of failing zones cannot be read here, so what is shown follows CPU",
            "`zonewise check` says why: ask for the right to read the ConfigMap zonewise-system/zonewise-demand, or delete it if its text is damaged; the leading controller writes it again with its next figures";
        DemandNotStored { services: u64 } => Setting,
            "the figures do not fit into the ConfigMap with measured demand, so they are not known here, and a new leader begins with CPU",
            "nothing to do for traffic; the controller goes on with what it remembers",
            figures(services) format!("those of {} do not fit", counted(services, "Service"));
    }
    // Which way the traffic of a node goes.
    routes {
        SameNodeHints { endpoints: u64, of: u64 } => InForce,
            "this node uses the endpoints hinted to it",
            NOTHING_TO_DO,
            figures(endpoints, of) format!("{endpoints} of {}", counted(of, "endpoint"));
        SameZoneHints { endpoints: u64, of: u64 } => InForce,
            "this node uses the endpoints hinted to its zone",
            NOTHING_TO_DO,
            figures(endpoints, of) format!("{endpoints} of {}", counted(of, "endpoint"));
        SharesApplied { in_zone: f64, endpoints: u64 } => InForce,
            "this node spreads its traffic over zones by their shares",
            NOTHING_TO_DO,
            figures(in_zone, endpoints) format!(
                "{}; {} stays in its zone",
                counted(endpoints, "endpoint"),
                percent(in_zone)
            );
        WeightsOverBudget { asked: u64, limit: u64 } => Fallback,
            "the Service needs more nftables elements than its limit, so its weights are dropped: each endpoint of its shares has the same chance",
            "use fewer ports, addresses or endpoints, or raise serviceElements or nodeElements of the proxy",
            figures(asked, limit) format!("{asked} elements, at most {limit}");
        AddressesOverBudget { asked: u64, limit: u64 } => Failed,
            "the Service needs more nftables elements than its limit, so some of its addresses are not served: external IPs first, ClusterIPs last",
            "use fewer ports, addresses or endpoints, or raise serviceElements or nodeElements of the proxy",
            figures(asked, limit) format!("{asked} elements, at most {limit}");
        ZoneSubset => InForce,
            "this node uses the slices of its zone",
            NOTHING_TO_DO;
        RegionSubset => InForce,
            "this node uses the slices of its region",
            NOTHING_TO_DO;
        LocalOnly { endpoints: u64 } => InForce,
            "the traffic policy is Local: only endpoints of this node are used",
            "nothing to do; hints do not matter for this traffic",
            figures(endpoints) counted(endpoints, "endpoint");
        NoHints => InForce,
            "no ready endpoint carries a hint, so this node uses all",
            "ask for zone routing on the Service to keep traffic in its zone";
        HintMissing { endpoints: u64 } => Fallback,
            "a ready endpoint carries no hint, so all hints are ignored",
            "wait for the controller; if this persists, give the endpoint's node a zone, or look for a second writer of slices",
            figures(endpoints) counted(endpoints, "endpoint");
        NoHintForNode { of: u64 } => Fallback,
            "no ready endpoint is hinted to this node",
            "nothing to do; run an endpoint on this node to keep its traffic there",
            figures(of) counted(of, "endpoint");
        NoHintForZone { of: u64 } => Fallback,
            "no ready endpoint is hinted to this node's zone",
            "run endpoints in this zone",
            figures(of) counted(of, "endpoint");
        NodeWithoutZone => Fallback,
            "this node does not know its zone or region",
            "label the node with topology.kubernetes.io/zone and topology.kubernetes.io/region";
        SharesStale { now: f64, then: f64 } => Fallback,
            "the zone shares were computed for other endpoints and would overload one",
            "wait for the controller to write new shares; if this persists, check that it runs",
            figures(now, then) format!(
                "now {now:.2} times the fair share of an endpoint, {then:.2} when they were computed"
            );
        SharesDisagree => Fallback,
            "the slices of the Service do not all carry the same zone shares",
            "wait for the controller; if this persists, look for a second writer of slices";
        SharesWithoutZone => Fallback,
            "the zone shares do not name this node's zone",
            "wait for the controller to add the zone; if this persists, check that it runs";
        OnlyTerminating { endpoints: u64 } => Fallback,
            "no endpoint is ready, so terminating endpoints that still serve are used",
            "check why no new Pod becomes ready",
            figures(endpoints) counted(endpoints, "endpoint");
        NoLocalEndpoint => Failed,
            "the traffic policy is Local and no endpoint of this node can serve, so this traffic is dropped",
            "run an endpoint on every node that gets such traffic, or set the policy to Cluster";
        SpecialAddresses { endpoints: u64 } => Failed,
            "endpoints with a loopback, link-local, multicast or unspecified address are left out, because packets to it would reach something else on every node",
            "give these endpoints addresses of their own in the EndpointSlices of the Service",
            figures(endpoints) counted(endpoints, "endpoint");
        SubsetEmpty => Fallback,
            "the slices for this node hold no ready endpoint, so all slices are used",
            "run endpoints in this zone or region";
        SubsetsMixed => Fallback,
            "the Service has slices of several kinds while it changes; this node uses all that are meant for it",
            "wait for the controller; if this persists, look for a second writer of slices";
        HintsGateOff => Setting,
            "the proxy's gate for hints is off, so this node uses all endpoints",
            "turn on TopologyAwareHints in the proxy";
        HintsNotAsked => Setting,
            "the proxy's gate for routing preferences is off and the Service lacks the topology annotation, so hints are ignored",
            "turn on ServiceRoutingPreference in the proxy, or annotate the Service with service.kubernetes.io/topology-mode: Auto";
    }
}

fn without_endpoints(zones: u64) -> String {
    match zones {
        0 => String::from("every zone has an endpoint"),
        1 => String::from("1 zone has no endpoint"),
        _ => format!("{zones} zones have no endpoint"),
    }
}

fn own_node(zones_without_endpoints: u64, endpoints_without_zone: u64) -> String {
    let zones = without_endpoints(zones_without_endpoints);
    match endpoints_without_zone {
        0 => zones,
        some => format!(
            "{zones}; {} without a zone, so nodes without an endpoint use all",
            counted(some, "endpoint")
        ),
    }
}

fn within_fair_share(in_zone: f64, max_overload: f64) -> String {
    let stays = format!("{} of the traffic stays in its zone", percent(in_zone));
    if max_overload > 0.0 {
        format!(
            "{stays}, no endpoint gets more than {} above its fair share",
            percent(max_overload)
        )
    } else {
        format!("{stays}, no endpoint gets more than its fair share")
    }
}

fn serve_another(moved: u64, place: &str) -> String {
    match moved {
        0 => format!("every endpoint serves its own {place}"),
        1 => format!("1 endpoint serves another {place}"),
        _ => format!("{moved} endpoints serve another {place}"),
    }
}

fn of_at_most(overload: f64, limit: f64) -> String {
    format!("{} of at most {}", percent(overload), percent(limit))
}
