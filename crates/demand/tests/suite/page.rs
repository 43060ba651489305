//! docs/demand.md has the constants as they are.

use zonewise_demand::cpu_use::{
    AHEAD, DEAD_BAND, LEAST_MILLI, LEAST_PERCENT, LEFT, LONGEST_WINDOW, MEASURED_PART,
    MOST_PERCENT, MOST_STEP, NOT_OLD, POWER, WINDOWS,
};
use zonewise_demand::health::{
    CHANCE_OF_FAILURES, CLEARLY, FADE, FEWEST, FEWEST_FAILED, LEAST, LEAST_CHANGE, LOWER_BY,
    MEMORY, MOST_GROWTH, RAISE_BY, RAISE_EVERY, STILL, TIMES, WORST,
};
use zonewise_demand::plausible::{CONNECTIONS_PER_CORE, MOST_OF_ONE_NODE};
use zonewise_demand::shares::{
    CHANCE, CHANGE_PER_SECOND, ENOUGH, FAST, FLOOR, LEAST_STEP, MOST_SECONDS, OLD, PRIOR, RESTLESS,
    REWRITE_EVERY, REWRITES_AT_ONCE, SLOW, SURPRISE,
};
use zonewise_demand::window::{HOLD, LONG_ENOUGH, UNCERTAIN};

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
        ("UNCERTAIN", UNCERTAIN),
        ("LONG_ENOUGH", LONG_ENOUGH),
        ("CONNECTIONS_PER_CORE", CONNECTIONS_PER_CORE),
        ("MOST_OF_ONE_NODE", MOST_OF_ONE_NODE),
        ("CLEARLY", CLEARLY),
        ("STILL", STILL),
        ("TIMES", TIMES),
        ("CHANCE_OF_FAILURES", CHANCE_OF_FAILURES),
        ("WORST", WORST),
        ("LEAST", LEAST.into()),
        ("FEWEST", FEWEST),
        ("FEWEST_FAILED", FEWEST_FAILED),
        ("MEMORY", MEMORY),
        ("FADE", FADE),
        ("LOWER_BY", LOWER_BY.into()),
        ("RAISE_BY", RAISE_BY.into()),
        ("RAISE_EVERY", RAISE_EVERY),
        ("LEAST_CHANGE", LEAST_CHANGE.into()),
        ("MOST_GROWTH", MOST_GROWTH),
        ("LEAST_PERCENT", LEAST_PERCENT.into()),
        ("MOST_PERCENT", MOST_PERCENT.into()),
        ("POWER", POWER),
        ("MOST_STEP", MOST_STEP),
        ("DEAD_BAND", DEAD_BAND),
        ("LEAST_MILLI", LEAST_MILLI),
        ("LEFT", LEFT),
        ("MEASURED_PART", MEASURED_PART),
        ("NOT_OLD", NOT_OLD),
        ("WINDOWS", WINDOWS),
        ("LONGEST_WINDOW", LONGEST_WINDOW),
        ("AHEAD", AHEAD),
    ];
    let page = include_str!("../../../../docs/demand.md");
    for (name, value) in constants {
        let row = format!("| `{name}` | {value} | ");
        assert!(page.contains(&row), "docs/demand.md lacks the row {row}");
    }
}
