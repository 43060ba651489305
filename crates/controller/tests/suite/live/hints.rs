//! Hints and preferences (KEP-2433, KEP-4444), from annotations to what the API server stores.

use super::{
    CLUSTER_WIDE, Case, DISTRIBUTION, HINTED, Keys, Live, MODE, NONE, OLDER_MODE, OWN_ZONE,
    PREFERENCE, SUBSETTING, accepted_message, asking, equal_zones, labelled, node_of, unready,
    without_cpu, zoneless, zones,
};
use crate::common::{Running, turn};
use zonewise_testbed::eventually;

const AUTO: Keys = &[(MODE, "Auto")];
const FOUR: &[(&str, usize)] = &[("a", 2), ("b", 2)];
const UNBALANCED: &str = "Accepted; not TooFewForBalance";
const UNKNOWN_CAPACITY: &str = "Accepted; not NodeInformationMissing";

/// Three zones of the same capacity.
const EQUAL: &[Case] = &[
    Case {
        what: "B6, B8: 2 endpoints, 3 zones",
        pods: &[("a", 1), ("b", 1)],
        services: &[(AUTO, "a*1 b*1", "Accepted; not TooFewEndpoints")],
    },
    Case {
        what: "B8: 3 endpoints, 3 zones",
        pods: &[("a", 1), ("b", 1), ("c", 1)],
        services: &[(AUTO, "a>a*1 b>b*1 c>c*1", HINTED)],
    },
    Case {
        what: "B8: 4 endpoints, 3 zones: 1.33 for one endpoint are 33 %",
        pods: &[("a", 2), ("b", 1), ("c", 1)],
        services: &[(AUTO, "a*2 b*1 c*1", UNBALANCED)],
    },
    Case {
        what: "B1: every way to ask for hints by capacity, and `Zone`, which is another thing",
        pods: &[("a", 14), ("b", 12), ("c", 10)],
        services: &[
            (AUTO, "a>a*12 a>c*2 b>b*12 c>c*10", HINTED),
            (&[(MODE, "auto")], "a>a*12 a>c*2 b>b*12 c>c*10", HINTED),
            (&[(OLDER_MODE, "Auto")], "a>a*12 a>c*2 b>b*12 c>c*10", HINTED),
            (&[(PREFERENCE, "zonewise.dev/auto")], "a>a*12 a>c*2 b>b*12 c>c*10", HINTED),
            (&[(PREFERENCE, "Zone")], "a>a*14 b>b*12 c>c*10", OWN_ZONE),
        ],
    },
    Case {
        what: "D11: `Default` and `Spread` use all, `Zone` hints to the own zone",
        pods: &[("a", 5), ("b", 1)],
        services: &[
            (&[(PREFERENCE, "Zone")], "a>a*5 b>b*1", OWN_ZONE),
            (&[(PREFERENCE, "Default")], "a*5 b*1", CLUSTER_WIDE),
            (&[(PREFERENCE, "Spread")], "a*5 b*1", CLUSTER_WIDE),
            // The field of Kubernetes loses against them, and is no mistake.
            (&[(PREFERENCE, "Spread"), (DISTRIBUTION, "PreferClose")], "a*5 b*1", CLUSTER_WIDE),
        ],
    },
    Case {
        what: "A23, D13, D18: which key wins; `Auto` gives two of zone a to c, `Zone` does not",
        pods: &[("a", 14), ("b", 12), ("c", 10)],
        services: &[
            (&[(DISTRIBUTION, "PreferClose")], "a>a*14 b>b*12 c>c*10", NONE),
            (
                &[(MODE, "Auto"), (PREFERENCE, "Zone")],
                "a>a*12 a>c*2 b>b*12 c>c*10",
                "not ChoiceOverridden; HintsAssigned",
            ),
            (
                &[(MODE, "Auto"), (PREFERENCE, "Spread")],
                "a>a*12 a>c*2 b>b*12 c>c*10",
                "not ChoiceOverridden; HintsAssigned",
            ),
            (&[(MODE, "Disabled"), (PREFERENCE, "Zone")], "a>a*14 b>b*12 c>c*10", OWN_ZONE),
            (
                &[(MODE, "aUto"), (PREFERENCE, "Zone")],
                "a>a*14 b>b*12 c>c*10",
                "not TopologyModeUnknown; OwnZone",
            ),
            (
                &[(SUBSETTING, "Auto"), (PREFERENCE, "Zone")],
                "for-zone=a: a*12 | for-zone=b: b*12 | for-zone=c: a*2 c*10",
                "not ChoiceOverridden; SubsetsAssigned",
            ),
            (
                &[(MODE, "Auto"), (SUBSETTING, "Auto")],
                "a>a*12 a>c*2 b>b*12 c>c*10",
                "not ChoiceOverridden; HintsAssigned",
            ),
            (&[(PREFERENCE, "Nearest")], "a*14 b*12 c*10", "not PreferenceReserved; ClusterWide"),
            (
                &[(PREFERENCE, "Nearest"), (DISTRIBUTION, "PreferClose")],
                "a>a*14 b>b*12 c>c*10",
                "not PreferenceReserved; OwnZone",
            ),
            (
                &[(PREFERENCE, "example.com/none")],
                "a*14 b*12 c*10",
                "not PreferenceUnknown; ClusterWide",
            ),
        ],
    },
];

const DOUBLE_CORES: &[Case] = &[Case {
    what: "B8: 4 endpoints, 3 zones, one with double cores",
    pods: &[("a", 2), ("b", 1), ("c", 1)],
    services: &[(AUTO, "a>a*2 b>b*1 c>c*1", HINTED)],
}];

const TWO_ZONES: &[Case] = &[
    Case {
        what: "B8: 4 endpoints, 2 zones",
        pods: FOUR,
        services: &[(AUTO, "a>a*2 b>b*2", HINTED)],
    },
    Case {
        what: "B8: 4 endpoints of one zone, 2 zones",
        pods: &[("a", 4)],
        services: &[(AUTO, "a>a*2 a>b*2", HINTED)],
    },
];

const TWO_TO_ONE: &[Case] = &[
    Case {
        what: "B14: 2 to 1 in cores, 2 endpoints: none",
        pods: &[("a", 1), ("b", 1)],
        services: &[(AUTO, "a*1 b*1", UNBALANCED)],
    },
    Case {
        what: "B14: 2 to 1 in cores is 2 to 1 in endpoints",
        pods: &[("a", 6), ("b", 3)],
        services: &[(AUTO, "a>a*6 b>b*3", HINTED)],
    },
    Case {
        what: "B14: also where there are as many in both zones",
        pods: &[("a", 3), ("b", 3)],
        services: &[(AUTO, "a>a*3 b>a*1 b>b*2", HINTED)],
    },
];

/// 20, 16 and 14 cores.
const PROPORTIONS: &[Case] = &[Case {
    what: "B14: 40, 32 and 28 % of ten endpoints",
    pods: &[("a", 10)],
    services: &[(AUTO, "a>a*4 a>b*3 a>c*3", HINTED)],
}];

const ONE_ZONE: &[Case] = &[Case {
    what: "B6, B8: one zone",
    pods: &[("a", 6)],
    services: &[(AUTO, "a*6", "Accepted; not OneZoneOnly")],
}];

/// 40, 41, 39 and 42 of 162 cores: 98.8, 101.2, 96.3 and 103.7 endpoints.
const FOUR_HUNDRED: &[Case] = &[Case {
    what: "B8: 400 endpoints, 4 zones of slightly different capacity",
    pods: &[("a", 100), ("b", 100), ("c", 100), ("d", 100)],
    services: &[(AUTO, "hints a*99 b*101 c*97 d*103", HINTED)],
}];

/// The ready worker nodes have 5, 4.5 and 0.5 cores.
const WORKERS: &[Case] = &[Case {
    what: "B3, B11, B18: ten, nine and one of twenty endpoints; the large nodes do not count",
    pods: &[("a1", 7), ("b1", 7), ("c1", 6)],
    services: &[(AUTO, "a>a*7 b>b*7 c>a*3 c>b*2 c>c*1", HINTED)],
}];

const REFUSED: &[Case] = &[Case {
    what: "B6: a node without zone, or without CPU",
    pods: FOUR,
    services: &[
        (AUTO, "a*2 b*2", UNKNOWN_CAPACITY),
        (&[(PREFERENCE, "Zone")], "a>a*2 b>b*2", OWN_ZONE),
    ],
}];

const COUNTED: &[Case] = &[Case {
    what: "B6: all nodes count as equal where the controller is told so",
    pods: FOUR,
    services: &[(AUTO, "a>a*2 b>b*2", HINTED)],
}];

#[tokio::test(flavor = "multi_thread")]
async fn a23_b1_b2_b3_b6_b8_b11_b14_b18_d11_d13_d18_hints_as_the_documents_say() {
    let _turn = turn().await;
    let mut live = Live::start().await;
    live.stage(equal_zones(), "", EQUAL).await;
    live.stage(zones(&[("a", "8"), ("b", "4"), ("c", "4")]), "", DOUBLE_CORES).await;
    live.stage(zones(&[("a", "4"), ("b", "4")]), "", TWO_ZONES).await;
    live.stage(zones(&[("a", "8"), ("b", "4")]), "", TWO_TO_ONE).await;
    live.stage(zones(&[("a", "20"), ("b", "16"), ("c", "14")]), "", PROPORTIONS).await;
    live.stage(zones(&[("a", "4")]), "", ONE_ZONE).await;
    live.stage(zones(&[("a", "40"), ("b", "41"), ("c", "39"), ("d", "42")]), "", FOUR_HUNDRED)
        .await;

    let mut workers = vec![node_of("a1", "a", "1"), node_of("a2", "a", "1")];
    workers.extend([node_of("a3", "a", "1"), node_of("a4", "a", "2")]);
    workers.extend([node_of("b1", "b", "3"), node_of("b2", "b", "1500m")]);
    workers.push(node_of("c1", "c", "500m"));
    workers.push(unready(node_of("a9", "a", "40")));
    for (name, label) in [("b9", "control-plane"), ("c9", "master")] {
        workers.push(labelled(
            node_of(name, &name[..1], "40"),
            &format!("node-role.kubernetes.io/{label}"),
        ));
    }
    live.stage(workers, "", WORKERS).await;

    let mut nodes = zones(&[("a", "4"), ("b", "4")]);
    nodes.push(zoneless(node_of("lost", "", "4")));
    live.stage(nodes, "", REFUSED).await;
    let silent = vec![node_of("a", "a", "40"), without_cpu(node_of("b", "b", "4"))];
    live.stage(silent.clone(), "", REFUSED).await;
    live.stage(silent, "capacity: { missingCpu: count-nodes }\n", COUNTED).await;
    losers_are_named(&mut live).await;
}

/// A23: the condition names the keys that lost, and the one that won.
async fn losers_are_named(live: &mut Live) {
    live.set_nodes(equal_zones()).await;
    let space = live.space(&[("a", 2), ("b", 2), ("c", 2)]).await;
    let keys: Keys = &[(MODE, "Auto"), (SUBSETTING, "Require"), (PREFERENCE, "Zone")];
    live.objects.create(&[asking(&space, "web", keys)]).await.unwrap();
    let running = Running::start(&live.cluster, "").await;
    let whole = ("a>a*2 b>b*2 c>c*2", "not ChoiceOverridden; HintsAssigned");
    let told = eventually(async || {
        let service = live.service(&space, "web").await;
        let found = super::shown(&live.slices(&space, "web").await)?;
        let told = super::conditions(&service);
        let good = (&*found, &*told) == whole;
        good.then(|| accepted_message(&service)).ok_or_else(|| format!("{found} {told}"))
    })
    .await;
    let expected = [
        "active: service.kubernetes.io/topology-mode `Auto`",
        "endpointslice.kubernetes.io/subsetting `Require`: ",
        "zonewise.dev/routing-preference `Zone`: ",
    ];
    let sentences: Vec<&str> = told.split("; ").collect();
    for start in expected {
        assert!(sentences.iter().any(|sentence| sentence.starts_with(start)), "{start}: {told}");
    }
    running.stop().await.unwrap();
}
