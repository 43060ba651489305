//! docs/demand.md has the constants as they are.

use zonewise_demand::plausible::{CONNECTIONS_PER_CORE, MOST_OF_ONE_NODE};
use zonewise_demand::shares::{
    CHANCE, CHANGE_PER_SECOND, ENOUGH, FAST, FLOOR, LEAST_STEP, MOST_SECONDS, OLD, PRIOR, RESTLESS,
    REWRITE_EVERY, REWRITES_AT_ONCE, SLOW, SURPRISE,
};
use zonewise_demand::window::HOLD;

#[test]
fn the_page_has_the_constants_as_they_are() {
    let constants = [
        ("PRIOR", PRIOR),
        ("ENOUGH", ENOUGH),
        ("FAST", FAST),
        ("SLOW", SLOW),
        ("SURPRISE", SURPRISE),
        ("LEAST_STEP", LEAST_STEP),
        ("CHANCE", CHANCE),
        ("CHANGE_PER_SECOND", CHANGE_PER_SECOND),
        ("MOST_SECONDS", MOST_SECONDS),
        ("REWRITES_AT_ONCE", REWRITES_AT_ONCE),
        ("RESTLESS", RESTLESS),
        ("REWRITE_EVERY", REWRITE_EVERY),
        ("FLOOR", FLOOR),
        ("OLD", OLD),
        ("HOLD", HOLD),
        ("CONNECTIONS_PER_CORE", CONNECTIONS_PER_CORE),
        ("MOST_OF_ONE_NODE", MOST_OF_ONE_NODE),
    ];
    let page = include_str!("../../../../docs/demand.md");
    for (name, value) in constants {
        let row = format!("| `{name}` | {value} | ");
        assert!(page.contains(&row), "docs/demand.md lacks the row {row}");
    }
}
