//! On a terminal with 80 columns, no line of any screen is longer, unless it is something to copy that cannot be
//! shorter.

use serde_json::Value;
use zonewise_explain::screens::Width;

use super::documents::Cluster;
use super::fields::Report;
use super::figures::World;
use super::screens::plain;

const COLUMNS: usize = 80;

/// The same cluster with names as long as those of real ones.
fn with_long_names(value: &mut Value) {
    match value {
        Value::String(text) => {
            let name = match text.as_str() {
                "a" | "b" | "c" | "d" | "e" | "f" => format!("northamerica-northeast1-{text}"),
                "web" => "recommendations-backend-canary".into(),
                _ => return,
            };
            *text = name;
        }
        Value::Array(items) => items.iter_mut().for_each(with_long_names),
        Value::Object(members) => members.values_mut().for_each(with_long_names),
        _ => {}
    }
}

/// Checks every line of every screen, with short and long names.
pub(crate) fn check(report: &mut Report, cluster: &Cluster) {
    let mut long = cluster.clone();
    long.objects.iter_mut().for_each(with_long_names);
    for cluster in [cluster, &long] {
        for screen in screens(cluster) {
            let screen = plain(&screen);
            for line in screen.lines().filter(|line| line.chars().count() > COLUMNS) {
                report.holds("80 columns", is_copied_whole(line), format!("{line}\n{screen}"));
            }
        }
    }
}

/// A command or a word.
fn is_copied_whole(line: &str) -> bool {
    let text =
        line.trim_start_matches([' ', '1', '2', '3', '4', '5', '6', '7', '8', '9', '0', '.']);
    let text = text.strip_prefix("and ").unwrap_or(text);
    text.starts_with("kubectl ") || text.starts_with('`') || !text.contains(' ')
}

fn screens(cluster: &Cluster) -> Vec<String> {
    let width = Width::Columns(COLUMNS);
    let world = World::of(cluster);
    let mut screens = vec![cluster.overview_at(width).1];
    if ["externalName", "withoutSelector"].contains(&world.kind()) {
        screens.push(cluster.unmanaged(width).1);
    } else {
        screens.push(cluster.explanation_at(width).1);
        screens.push(cluster.plan_screen(width));
    }
    screens.extend(cluster.matrices_at(width).1);
    screens.extend(world.nodes.first().map(|node| cluster.routes_at(&node.name, width).1));
    screens
}
