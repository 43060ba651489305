//! Slices per zone and region (KEP-2004), from annotations to what the API server stores.

use super::{
    CLUSTER_WIDE, Case, DIVIDED, EXTERNAL_POLICY, INTERNAL_POLICY, Keys, Live, NONE, PADDING,
    PREFERENCE, REQUIRED, SUBSETTING, THRESHOLD, TYPE, equal_zones, node_of, without_cpu, zoneless,
    zones,
};
use crate::common::turn;

const AUTO: Keys = &[(SUBSETTING, "Auto")];
const REQUIRE: Keys = &[(SUBSETTING, "Require")];
const REGION: Keys = &[(SUBSETTING, "Region")];
/// The algorithm alone, without a number of endpoints at which it starts.
const ALONE: Keys = &[(SUBSETTING, "Auto"), (THRESHOLD, "1"), (PADDING, "0")];
const NO_PADDING: Keys = &[(SUBSETTING, "Auto"), (PADDING, "0")];
const TOO_FEW: &str = "Accepted; not BelowStartingThreshold";
const LOCAL: &str = "not LocalPolicy; ClusterWide";

/// Three zones of the same capacity; a and b are one region.
const EQUAL: &[Case] = &[
    Case {
        what: "A2: nothing is requested, or nothing that is known; C9: Local",
        pods: &[("a", 10), ("b", 10), ("c", 10)],
        services: &[
            (&[], "a*10 b*10 c*10", NONE),
            (&[(SUBSETTING, "")], "a*10 b*10 c*10", CLUSTER_WIDE),
            (&[(SUBSETTING, "Sometimes")], "a*10 b*10 c*10", "not SubsettingUnknown; ClusterWide"),
            (AUTO, "for-zone=a: a*10 | for-zone=b: b*10 | for-zone=c: c*10", DIVIDED),
            (&[(SUBSETTING, "Auto"), (INTERNAL_POLICY, "Local")], "a*10 b*10 c*10", LOCAL),
            (&[(SUBSETTING, "Require"), (INTERNAL_POLICY, "Local")], "a*10 b*10 c*10", LOCAL),
            (
                &[(SUBSETTING, "Auto"), (TYPE, "NodePort"), (EXTERNAL_POLICY, "Local")],
                "a*10 b*10 c*10",
                LOCAL,
            ),
        ],
    },
    Case {
        what: "A5: the zone with the most gives to those with the least, one at a time",
        pods: &[("a", 9)],
        services: &[(ALONE, "for-zone=a: a*3 | for-zone=b: a*3 | for-zone=c: a*3", DIVIDED)],
    },
    Case {
        what: "A5: own endpoints first; b is neither a donor nor a receiver",
        pods: &[("a", 10), ("b", 6), ("c", 2)],
        services: &[(ALONE, "for-zone=a: a*6 | for-zone=b: b*6 | for-zone=c: a*4 c*2", DIVIDED)],
    },
    Case {
        what: "A19: ten endpoints, 3.3 expected in each zone: a gives one to c",
        pods: &[("a", 5), ("b", 3), ("c", 2)],
        services: &[(ALONE, "for-zone=a: a*4 | for-zone=b: b*3 | for-zone=c: a*1 c*2", DIVIDED)],
    },
    Case {
        what: "A5, A6, A19: five endpoints, 1.67 expected: 67 % overload, so no subsets",
        pods: &[("a", 2), ("b", 2), ("c", 1)],
        services: &[(ALONE, "a*2 b*2 c*1", "Accepted; not OverloadTooHigh")],
    },
    Case {
        what: "A6: three expected and two present are 50 %, which is too much",
        pods: &[("a", 5), ("b", 2), ("c", 2)],
        services: &[(
            ALONE,
            "for-zone=a: a*3 | for-zone=b: a*1 b*2 | for-zone=c: a*1 c*2",
            DIVIDED,
        )],
    },
    Case {
        what: "A6: 3.3 expected and three present are 11 %, which may stay",
        pods: &[("a", 4), ("b", 3), ("c", 3)],
        services: &[(ALONE, "for-zone=a: a*4 | for-zone=b: b*3 | for-zone=c: c*3", DIVIDED)],
    },
    Case {
        what: "A6: the largest surplus gives first, then both in turn",
        pods: &[("a", 10), ("b", 13), ("c", 1)],
        services: &[(
            ALONE,
            "for-zone=a: a*8 | for-zone=b: b*8 | for-zone=c: a*2 b*5 c*1",
            DIVIDED,
        )],
    },
    Case {
        what: "A7: three in each zone are the threshold, and one in each the padding above it: 11 are too few",
        pods: &[("a", 4), ("b", 4), ("c", 3)],
        services: &[(AUTO, "a*4 b*4 c*3", TOO_FEW)],
    },
    Case {
        what: "A7: 12 are enough",
        pods: &[("a", 4), ("b", 4), ("c", 4)],
        services: &[(AUTO, "for-zone=a: a*4 | for-zone=b: b*4 | for-zone=c: c*4", DIVIDED)],
    },
    Case {
        what: "A7: nine are the threshold itself, which an invalid value leaves in force",
        pods: &[("a", 3), ("b", 3), ("c", 3)],
        services: &[
            (NO_PADDING, "for-zone=a: a*3 | for-zone=b: b*3 | for-zone=c: c*3", DIVIDED),
            (
                &[(SUBSETTING, "Auto"), (PADDING, "0"), (THRESHOLD, "0")],
                "for-zone=a: a*3 | for-zone=b: b*3 | for-zone=c: c*3",
                "not StartingThresholdInvalid; SubsetsAssigned",
            ),
            (&[(SUBSETTING, "Auto"), (PADDING, "0"), (THRESHOLD, "10")], "a*3 b*3 c*3", TOO_FEW),
        ],
    },
    Case {
        what: "A7: eight are below it, unless the Service says otherwise",
        pods: &[("a", 3), ("b", 3), ("c", 2)],
        services: &[
            (NO_PADDING, "a*3 b*3 c*2", TOO_FEW),
            (
                &[(SUBSETTING, "Auto"), (PADDING, "0"), (THRESHOLD, "many")],
                "a*3 b*3 c*2",
                "not StartingThresholdInvalid; not BelowStartingThreshold",
            ),
            (
                &[(SUBSETTING, "Auto"), (PADDING, "0"), (THRESHOLD, "8")],
                "for-zone=a: a*3 | for-zone=b: b*3 | for-zone=c: c*2",
                DIVIDED,
            ),
        ],
    },
    Case {
        what: "A12: document C's table, 6 endpoints: 1, 1 and 3 slices",
        pods: &[("a", 2), ("b", 2), ("c", 2)],
        services: &[
            (&[(SUBSETTING, "Original")], "a*2 b*2 c*2", CLUSTER_WIDE),
            (&[(SUBSETTING, "PreferZone")], "a*2 b*2 c*2", TOO_FEW),
            (
                &[(SUBSETTING, "RequireZone")],
                "for-zone=a: a*2 | for-zone=b: b*2 | for-zone=c: c*2",
                REQUIRED,
            ),
        ],
    },
    Case {
        what: "A12: 90 endpoints: 1, 3 and 3 slices",
        pods: &[("a", 30), ("b", 30), ("c", 30)],
        services: &[
            (&[(SUBSETTING, "Original")], "a*30 b*30 c*30", CLUSTER_WIDE),
            (
                &[(SUBSETTING, "PreferZone")],
                "for-zone=a: a*30 | for-zone=b: b*30 | for-zone=c: c*30",
                DIVIDED,
            ),
            (
                &[(SUBSETTING, "RequireZone")],
                "for-zone=a: a*30 | for-zone=b: b*30 | for-zone=c: c*30",
                REQUIRED,
            ),
        ],
    },
    Case {
        what: "A12: 270 endpoints: 3, 3 and 3 slices",
        pods: &[("a", 90), ("b", 90), ("c", 90)],
        services: &[
            (&[(SUBSETTING, "Original")], "3 slices: a*90 b*90 c*90", CLUSTER_WIDE),
            (
                &[(SUBSETTING, "PreferZone")],
                "for-zone=a: a*90 | for-zone=b: b*90 | for-zone=c: c*90",
                DIVIDED,
            ),
            (
                &[(SUBSETTING, "RequireZone")],
                "for-zone=a: a*90 | for-zone=b: b*90 | for-zone=c: c*90",
                REQUIRED,
            ),
        ],
    },
    Case {
        what: "A13: a slice for every zone that has nodes; A25: zones without endpoints",
        pods: &[("a", 30)],
        services: &[
            (AUTO, "for-zone=a: a*10 | for-zone=b: a*10 | for-zone=c: a*10", DIVIDED),
            (REQUIRE, "for-zone=a: a*30 | for-zone=b: | for-zone=c:", REQUIRED),
            (REGION, "for-region=r: a*20 | for-region=s: a*10", DIVIDED),
            (&[(SUBSETTING, "Random")], "a*30", CLUSTER_WIDE),
        ],
    },
    Case {
        what: "A25: uneven endpoints, 11 expected in each zone",
        pods: &[("a", 30), ("b", 2), ("c", 1)],
        services: &[
            (AUTO, "for-zone=a: a*11 | for-zone=b: a*9 b*2 | for-zone=c: a*10 c*1", DIVIDED),
            (REQUIRE, "for-zone=a: a*30 | for-zone=b: b*2 | for-zone=c: c*1", REQUIRED),
            (&[(SUBSETTING, "Random")], "a*30 b*2 c*1", CLUSTER_WIDE),
        ],
    },
];

/// The same zones, with a controller whose default approach is `Auto`.
const BY_DEFAULT: &[Case] = &[Case {
    what: "A2: the default of the controller, for Services that choose nothing valid; C9: Local",
    pods: &[("a", 4), ("b", 4), ("c", 4)],
    services: &[
        (&[], "for-zone=a: a*4 | for-zone=b: b*4 | for-zone=c: c*4", NONE),
        (
            &[(SUBSETTING, "Sometimes")],
            "for-zone=a: a*4 | for-zone=b: b*4 | for-zone=c: c*4",
            "not SubsettingUnknown; SubsetsAssigned",
        ),
        (&[(SUBSETTING, "Random")], "a*4 b*4 c*4", CLUSTER_WIDE),
        (&[(INTERNAL_POLICY, "Local")], "a*4 b*4 c*4", NONE),
    ],
}];

/// Zone a has as many cores as b and c together.
const BY_CPU: &[Case] = &[
    Case {
        what: "A4: expected endpoints by CPU",
        pods: &[("a", 12)],
        services: &[(AUTO, "for-zone=a: a*6 | for-zone=b: a*3 | for-zone=c: a*3", DIVIDED)],
    },
    Case {
        what: "A4: expected endpoints by CPU, which the zones have",
        pods: &[("a", 8), ("b", 4), ("c", 4)],
        services: &[(AUTO, "for-zone=a: a*8 | for-zone=b: b*4 | for-zone=c: c*4", DIVIDED)],
    },
];

/// Two nodes of zone a and three of b, one of which does not say its CPU: the others have the same in both zones.
const BY_NODES: &[Case] = &[Case {
    what: "A4: expected endpoints by nodes",
    pods: &[("a1", 10)],
    services: &[(ALONE, "for-zone=a: a*4 | for-zone=b: a*6", DIVIDED)],
}];

/// 21, 21 and 20 nodes.
const MANY_NODES: &[Case] = &[
    Case {
        what: "A5, A25: many nodes; 10.5, 10.5 and 10 are expected, and c gets one of a",
        pods: &[("a1", 11), ("b1", 11), ("c1", 9)],
        services: &[(AUTO, "for-zone=a: a*10 | for-zone=b: b*11 | for-zone=c: a*1 c*9", DIVIDED)],
    },
    Case {
        what: "A25: many nodes, and endpoints in one zone",
        pods: &[("c1", 31)],
        services: &[
            (REQUIRE, "for-zone=a: | for-zone=b: | for-zone=c: c*31", REQUIRED),
            (&[(SUBSETTING, "Random")], "c*31", CLUSTER_WIDE),
        ],
    },
];

/// Three equal zones, and a node that does not say its zone.
const LOST: &[Case] = &[Case {
    what: "A10: 4.7 are expected in each zone; of three without a zone c needs two and b one",
    pods: &[("a", 5), ("b", 4), ("c", 2), ("lost", 3)],
    services: &[
        (AUTO, "for-zone=a: a*5 | for-zone=b: ?*1 b*4 | for-zone=c: ?*2 c*2", DIVIDED),
        (REQUIRE, "for-zone=a: a*5 | for-zone=b: ?*1 b*4 | for-zone=c: ?*2 c*2", REQUIRED),
    ],
}];

/// Three, one and three cores: row S027 of the evaluation tool's results (testdata/simulator/groups.csv).
const OF_THE_TOOL: &[Case] = &[Case {
    what: "A18: the evaluation tool's groups",
    pods: &[("a", 1), ("b", 2), ("c", 1)],
    services: &[
        // shared-zone1-zone3 {zone1:1 zone2:1 zone3:1}; zone2 {zone2:1}
        (
            &[(PREFERENCE, "zonewise.dev/local-shared")],
            "a>a+c*1 b>a+c*1 b>b*1 c>a+c*1",
            "Accepted; GroupsAssigned",
        ),
        // One of zone2 for zone1 (2/7) and zone3 (5/7), one for zone1 (3/7) and zone2 (4/7), the others at home:
        // of 12/7 endpoints that zone1 uses, 1 is its own.
        (
            &[(PREFERENCE, "zonewise.dev/local-weighted")],
            r#"a*1 b*2 c*1 {"v":1,"endpoints":{"a":1,"b":2,"c":1},"from":{"a":{"a":0.583333,"b":0.416667},"b":{"b":1},"c":{"b":0.416667,"c":0.583333}}}"#,
            "Accepted; GroupsAssigned",
        ),
        // Both of zone2 for all zones (1/3 each), the others at home.
        (
            &[(PREFERENCE, "zonewise.dev/local-opt")],
            r#"a*1 b*2 c*1 {"v":1,"endpoints":{"a":1,"b":2,"c":1},"from":{"a":{"a":0.6,"b":0.4},"b":{"b":1},"c":{"b":0.4,"c":0.6}}}"#,
            "Accepted; GroupsAssigned",
        ),
    ],
}];

#[tokio::test(flavor = "multi_thread")]
async fn a2_a4_a5_a6_a7_a10_a12_a13_a17_a18_a19_a25_a29_c1_c9_slices_as_the_documents_say() {
    let _turn = turn().await;
    let mut live = Live::start().await;
    live.stage(equal_zones(), "", EQUAL).await;
    live.stage(equal_zones(), "defaultSubsetting: Auto\n", BY_DEFAULT).await;
    live.stage(zones(&[("a", "8"), ("b", "4"), ("c", "4")]), "", BY_CPU).await;
    let mut by_nodes = vec![node_of("a1", "a", "4"), node_of("a2", "a", "4")];
    by_nodes.extend([node_of("b1", "b", "4"), node_of("b2", "b", "4")]);
    by_nodes.push(without_cpu(node_of("b3", "b", "4")));
    live.stage(by_nodes, "", BY_NODES).await;
    let many = |zone: &str, count: usize| -> Vec<_> {
        (1..=count).map(|number| node_of(&format!("{zone}{number}"), zone, "1")).collect()
    };
    live.stage([many("a", 21), many("b", 21), many("c", 20)].concat(), "", MANY_NODES).await;
    let mut lost = equal_zones();
    lost.push(zoneless(node_of("lost", "", "4")));
    live.stage(lost, "", LOST).await;
    live.stage(zones(&[("a", "3"), ("b", "1"), ("c", "3")]), "", OF_THE_TOOL).await;
}
