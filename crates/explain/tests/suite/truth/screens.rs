//! The screens show the figures of the documents, which other checks compare with the truth.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::fields::Report;

/// A row of a table on a screen, by the titles of its columns.
pub(crate) type Cells = BTreeMap<String, String>;

/// A screen without colours.
pub(crate) fn plain(screen: &str) -> String {
    let mut parts = screen.split('\u{1b}');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(part.split_once('m').map_or("", |(_, rest)| rest));
    }
    text
}

/// The cells of a line: there are at least two spaces between columns.
fn cells(line: &str) -> Vec<&str> {
    line.trim().split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// The rows of the first table whose header begins with these columns. A column of marks before them
/// has no title, and may be empty.
pub(crate) fn table(screen: &str, first: &[&str]) -> Vec<Cells> {
    let mut lines = screen.lines();
    let header = lines.by_ref().map(cells).find(|header| header.starts_with(first));
    let header = header.unwrap_or_else(|| panic!("no table {first:?}:\n{screen}"));
    let mut rows = Vec::new();
    for mut row in lines.map(cells) {
        let marks = row.first().filter(|cell| cell.chars().all(|c| "!~".contains(c)));
        let mut shown = Cells::new();
        if let Some(marks) = marks.map(|marks| (*marks).to_owned()) {
            shown.insert(MARKS.to_owned(), marks);
            row.remove(0);
        }
        if row.len() != header.len() {
            break;
        }
        let named = header.iter().zip(row);
        shown.extend(named.map(|(title, cell)| (title.to_string(), cell.to_owned())));
        rows.push(shown);
    }
    rows
}

/// Stands for the title of the column of marks.
pub(crate) const MARKS: &str = "marks";

/// Compares the cells of a row whose columns are shown.
pub(crate) fn row(report: &mut Report, name: &str, shown: &Cells, truth: &[(&str, String)]) {
    for (column, truth) in truth {
        if let Some(cell) = shown.get(*column) {
            report.holds(name, cell == truth, format!("{column} should be {truth}: {shown:?}"));
        }
    }
}

/// A part as screens show it: halves are rounded up, and there is no −0.
pub(crate) fn percent(part: &Value) -> String {
    part.as_f64()
        .map_or_else(|| "-".into(), |part| format!("{:.0} %", (part * 100.0).round() + 0.0))
}

/// The same with its sign.
pub(crate) fn signed(part: &Value) -> String {
    match part.as_f64().map(|part| (part * 100.0).round()) {
        None => "-".into(),
        Some(0.0) => "0 %".into(),
        Some(part) => format!("{part:+.0} %"),
    }
}

/// A text or number of a document.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The screen of an explanation.
pub(crate) fn explanation(report: &mut Report, explanation: &Value, screen: &str) {
    let screen = plain(screen);
    let verdict = &explanation["verdict"];
    let first = [
        format!("shop/web: {}", text(&verdict["sentence"])),
        format!("why: {}", text(&verdict["why"])),
    ];
    for line in first {
        report.holds("explain screen", screen.contains(&line), format!("{line}\n{screen}"));
    }
    sentences(report, explanation, &screen);
    if explanation["serviceKind"] != "routed" {
        let decided = ["decision ", "Capacity", "What proxies do", "Fix:", "When zone routing"];
        let silent = !decided.iter().any(|word| screen.contains(word));
        return report.holds("explain screen", silent, screen);
    }
    let in_zone = &explanation["inZone"];
    let line = format!(
        "now {}, once the decision is carried out {}, at best without overload {}",
        percent(&in_zone["now"]),
        percent(&in_zone["planned"]),
        percent(&in_zone["best"])
    );
    report.holds("explain screen", screen.contains(&line), format!("{line}\n{screen}"));
    let line = format!("decision   {}", text(&explanation["reason"]));
    report.holds("explain screen", screen.contains(&line), format!("{line}\n{screen}"));
    zones(report, explanation, &screen);
    heuristics(report, explanation, &screen);
    proxies(report, explanation, &screen);
}

fn zones(report: &mut Report, explanation: &Value, screen: &str) {
    let zones = explanation["zones"].as_array().unwrap();
    let group = if explanation["groupedBy"] == "region" { "REGION" } else { "ZONE" };
    let shown = table(screen, &[group, "NODES"]);
    report.holds("explain screen", shown.len() == zones.len(), screen);
    for (shown, zone) in shown.iter().zip(zones) {
        let cores = (zone["cpu"].as_f64().unwrap() * 100.0).round() / 100.0;
        let max = if zone["max"] == 0 { "–".into() } else { text(&zone["max"]) };
        let assigned = zone["assigned"].as_u64().map_or("-".into(), |count| count.to_string());
        let truth = [
            (group, text(&zone["zone"])),
            ("NODES", text(&zone["nodes"])),
            ("CORES", cores.to_string()),
            ("SHARE", percent(&zone["share"])),
            ("ENDPOINTS", text(&zone["endpoints"])),
            ("EXPECTED", format!("{:.2}", zone["expected"].as_f64().unwrap())),
            ("MIN", text(&zone["min"])),
            ("MAX", max),
            ("ASSIGNED", assigned),
            ("OVERLOAD", signed(&zone["overload"])),
        ];
        row(report, "explain screen", shown, &truth);
    }
}

fn heuristics(report: &mut Report, explanation: &Value, screen: &str) {
    let scores = explanation["inZoneByHeuristic"].as_array().unwrap();
    let shown = table(screen, &["HEURISTIC"]);
    report.holds("explain screen", shown.len() == scores.len(), screen);
    for (shown, score) in shown.iter().zip(scores) {
        let truth = [
            ("HEURISTIC", text(&score["heuristic"])),
            ("REASON", text(&score["reason"])),
            ("IN ZONE (MODEL)", percent(&score["inZone"])),
            ("OVERLOAD (MODEL)", signed(&score["maxOverload"])),
        ];
        row(report, "explain screen", shown, &truth);
    }
}

fn proxies(report: &mut Report, explanation: &Value, screen: &str) {
    let mut truth = Vec::new();
    for proxy in explanation["consumers"].as_array().unwrap() {
        for from in proxy["from"].as_array().unwrap() {
            truth.push([
                ("PROXY", text(&proxy["consumer"])),
                ("FAMILY", text(&proxy["family"])),
                ("FROM", text(&from["zone"])),
                ("MODE", text(&from["mode"])),
                ("REASON", text(&from["reason"])),
                ("IN ZONE", percent(&from["inZone"])),
            ]);
        }
    }
    if truth.is_empty() {
        return;
    }
    let shown = table(screen, &["PROXY"]);
    report.holds("explain screen", shown.len() == truth.len(), screen);
    for (shown, truth) in shown.iter().zip(&truth) {
        row(report, "explain screen", shown, truth);
    }
}

/// Advice, losses and what is ignored are on the screen.
fn sentences(report: &mut Report, explanation: &Value, screen: &str) {
    let mut expected = Vec::new();
    for change in explanation["changes"].as_array().unwrap() {
        expected.extend(change["sentences"].as_array().unwrap().iter().map(text));
        expected.push(format!("gives {}", text(&change["then"])));
    }
    // They compare with the decision, which must have effect for that.
    let has_effect = explanation["verdict"]["missing"] == json!([]);
    let improvements = explanation["improvements"].as_array().unwrap();
    for change in improvements.iter().filter(|_| has_effect) {
        expected.extend(change["sentences"].as_array().unwrap().iter().map(text));
        let (in_zone, most) = (percent(&change["inZone"]), signed(&change["maxOverload"]));
        let figures = format!("{in_zone} stays in its zone, overload at most {most}");
        expected.push(format!("gives {}: {figures}", text(&change["then"])));
    }
    for note in explanation["notes"].as_array().unwrap() {
        expected.push(format!("{} = {}", text(&note["source"]), text(&note["value"])));
        expected.push(text(&note["sentence"]));
        expected.extend(note["commands"].as_array().unwrap().iter().map(text));
    }
    let margin = &explanation["margin"];
    for loss in margin["endpoints"].as_array().into_iter().flatten() {
        let (has, survives) = (loss["has"].as_u64().unwrap(), &loss["survives"]);
        let of = if has == 1 { "1 endpoint".into() } else { format!("{has} endpoints") };
        let words = match loss["then"].as_str() {
            Some(then) => format!("after losing {survives} of {of}, then {then}"),
            None if has == 0 => "has no endpoint to lose".into(),
            None => format!("after losing all of its {of}"),
        };
        expected.push(format!("{}: ", text(&loss["zone"])));
        expected.push(words);
    }
    for zone in margin["zones"].as_array().into_iter().flatten() {
        let name = text(&zone["zone"]);
        expected.push(match zone["then"].as_str() {
            Some(then) => format!("turns off after losing zone {name}: {then}"),
            None => format!("stays on after losing zone {name}"),
        });
    }
    for node in margin["criticalNodes"].as_array().into_iter().flatten() {
        expected.push(format!("{} (then {})", text(&node["node"]), text(&node["then"])));
    }
    let runs = screen.contains("When zone routing stays on");
    let would = screen.contains("When zone routing would stay on if ");
    let title = if explanation["margin"].is_null() { !runs && !would } else { runs != would };
    report.holds("explain screen", title, screen);
    for sentence in expected {
        report.holds("explain screen", screen.contains(&sentence), format!("{sentence}\n{screen}"));
    }
}
