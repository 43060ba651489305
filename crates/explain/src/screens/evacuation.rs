//! The screen of `zonewise evacuate` before anything is done.

use std::fmt::Write;

use super::table::fitted;
use super::{BAD, BOLD, GOOD, Width, clean, counted, paint};
use crate::evacuation::{EvacuationCheck, ServiceCheck};

/// What emptying a zone would mean, Service by Service.
pub fn evacuation(check: &EvacuationCheck, width: Width) -> String {
    let mut out = String::new();
    let title = format!("Emptying zone {}", clean(&check.zone));
    let _ = writeln!(out, "{}", paint(BOLD, &title));
    let services: Vec<&ServiceCheck> = check.services.iter().collect();
    if services.is_empty() {
        let _ = writeln!(out, "No Service has a ready endpoint in this zone.");
        return out;
    }
    let row = |one: &&ServiceCheck| {
        let note = match one.kept {
            Some(kept) => format!("stays: {kept}"),
            None if one.over_limit => format!("above the limit of {} %", check.limit_percent),
            None => String::new(),
        };
        let load = format!("{} %", one.load_percent);
        vec![one.service.clone(), note, one.in_zone.to_string(), one.elsewhere.to_string(), load]
    };
    let header = ["SERVICE", "NOTE", "ENDPOINTS IN ZONE", "ELSEWHERE", "BUSIEST ENDPOINT"];
    let rows = services.iter().map(row).collect();
    let _ = writeln!(out, "{}\n", fitted(&header, 2, rows, width));
    let over = services.iter().filter(|one| one.over_limit).count();
    let verdict = match over {
        0 => paint(
            GOOD,
            &format!(
                "The other zones can take it: {} of {} would be taken out of use, and no endpoint elsewhere would get more than {} % of its present load.",
                counted(check.moved, "endpoint"),
                counted(services.len(), "Service"),
                check.limit_percent
            ),
        ),
        over => paint(
            BAD,
            &format!(
                "The other zones cannot take it: an endpoint of {} would get more than {} % of its present load.",
                counted(over, "Service"),
                check.limit_percent
            ),
        ),
    };
    let _ = writeln!(out, "{verdict}");
    out
}
