//! The page that people who move from `topology-mode` read gives the advice of the routing preference's document: what
//! replaces what, the danger of `Zone`, one Deployment per zone.

use zonewise_topology::heuristics::parse;

const PAGE: &str = include_str!("../../../../docs/controller.md");

#[test]
fn d21_the_page_says_how_to_move_from_topology_mode() {
    let (_, section) = PAGE.split_once("### Moving from topology-mode").unwrap();
    let section = section.split("\n## ").next().unwrap();
    // The second column of the table.
    let advice: Vec<&str> = section.lines().filter_map(|line| line.split('|').nth(2)).collect();
    for instead in ["zonewise.dev/auto", "zonewise.dev/balanced", "Zone"] {
        assert!(advice.iter().any(|cell| cell.contains(instead)), "{instead}: {advice:?}");
    }
    let exists = |heuristic: &str| parse(heuristic).is_ok();
    assert!(exists("auto") && exists("balanced"), "what the page recommends exists");
    for warning in
        ["`Zone` and `PreferSameZone` have no safeguard", "HorizontalPodAutoscaler per zone"]
    {
        assert!(section.contains(warning), "{warning}");
    }
}
