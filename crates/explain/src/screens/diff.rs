//! What a plan changes, as a unified diff.

use similar::{ChangeTag, TextDiff};
use zonewise_slices::slice::Slice;

use super::plan::settled_comment;
use super::{BAD, BOLD, DIM, GOOD, clean, paint, yaml};
use crate::plan::ServicePlan;

/// The number of unchanged lines around a change.
const CONTEXT: usize = 3;

/// The changes to the stored slices of a Service; empty if there are none.
///
/// # Errors
/// If a slice cannot be written as YAML.
pub fn diff(plan: &ServicePlan) -> Result<String, serde_saphyr::ser::Error> {
    let stored = |name: &str| plan.stored.iter().find(|slice| slice.name() == name);
    let text = |slice: Option<&Slice>| slice.map_or_else(|| Ok(String::new()), yaml);
    let mut out = settled_comment(plan);
    for slice in &plan.creates {
        out.push_str(&slice_diff(plan, slice.name(), "", &text(Some(slice))?));
    }
    for slice in &plan.updates {
        let before = text(stored(slice.name()).map(|slice| &**slice))?;
        out.push_str(&slice_diff(plan, slice.name(), &before, &text(Some(slice))?));
    }
    for name in &plan.deletes {
        let before = text(stored(name).map(|slice| &**slice))?;
        out.push_str(&slice_diff(plan, name, &before, ""));
    }
    Ok(out)
}

fn slice_diff(plan: &ServicePlan, name: &str, before: &str, after: &str) -> String {
    let namespace = plan.service.split('/').next().unwrap_or_default();
    let file = |text: &str| {
        if text.is_empty() { "/dev/null".into() } else { clean(&format!("{namespace}/{name}")) }
    };
    let mut out = paint(BOLD, &format!("--- {}\n+++ {}", file(before), file(after))) + "\n";
    let diff = TextDiff::from_lines(before, after);
    for group in diff.grouped_ops(CONTEXT) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let header = format!(
            "@@ -{},{} +{},{} @@",
            first.old_range().start + 1,
            last.old_range().end - first.old_range().start,
            first.new_range().start + 1,
            last.new_range().end - first.new_range().start,
        );
        out.push_str(&(paint(DIM, &header) + "\n"));
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let line = change.value().trim_end_matches('\n');
            out.push_str(&match change.tag() {
                ChangeTag::Delete => paint(BAD, &format!("-{line}")),
                ChangeTag::Insert => paint(GOOD, &format!("+{line}")),
                ChangeTag::Equal => format!(" {line}"),
            });
            out.push('\n');
        }
    }
    out
}
