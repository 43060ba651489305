//! Zones that are being emptied.

use super::{Check, Part, Sights, Subject, listed};
use crate::shell_quote::shell_quote;

const EVACUATIONS: Subject = Subject(Part::Controllers, "evacuations");

/// `None` where no zone is being emptied.
pub(super) fn check(sights: &Sights) -> Option<Check> {
    let under_way = || sights.evacuations.iter().filter(|one| one.status.percent < 100);
    let line = |one: &zonewise_inventory::evacuation::StoredEvacuation| {
        let (percent, deadline) = (one.status.percent, &one.spec.deadline);
        format!("{} ({percent} % of its endpoints are in use, until {deadline})", one.spec.zone)
    };
    let lines: Vec<String> = under_way().map(line).collect();
    if lines.is_empty() {
        return None;
    }
    let check = EVACUATIONS.warning(
        format!(
            "zones are being emptied, and others serve their clients: {}",
            listed(lines.iter().map(String::as_str))
        ),
        "nothing, if that is meant; otherwise give them their traffic back",
    );
    let restore =
        under_way().map(|one| format!("zonewise restore {}", shell_quote(&one.spec.zone)));
    Some(check.with(restore))
}
