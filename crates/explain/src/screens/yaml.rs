//! Objects as YAML, as `kubectl` writes them.

use serde::Serialize;

use super::plan::settled_comment;
use crate::plan::ServicePlan;
use crate::shell_quote::shell_quote;

/// A value as YAML.
///
/// # Errors
/// If it cannot be written.
pub fn yaml<T: Serialize>(value: &T) -> Result<String, serde_saphyr::ser::Error> {
    let options = serde_saphyr::ser_options! {
        compact_list_indent: true,
        prefer_block_scalars: false,
    };
    let mut text = String::new();
    serde_saphyr::to_fmt_writer_with_options(&mut text, value, options)?;
    Ok(text)
}

/// The first lines of a `List`.
const LIST_HEAD: &str = "apiVersion: v1\nkind: List\nitems:\n";

/// A `List` of slices, or in guard mode of ZoneAllocations, for `kubectl apply --server-side -f -`, written Service by Service.
#[derive(Default)]
pub struct List {
    items: usize,
}

impl List {
    /// The slices of a Service. Slices to delete become comments with the command.
    ///
    /// # Errors
    /// If a slice cannot be written.
    pub fn add(&mut self, plan: &ServicePlan) -> Result<String, serde_saphyr::ser::Error> {
        let mut text = String::new();
        if plan.guard {
            let head = if self.items == 0 { LIST_HEAD } else { "" };
            let Some(allocation) = &plan.allocation else { return Ok(text) };
            self.items += 1;
            return Ok(format!("{head}{}{}", settled_comment(plan), item(allocation)?));
        }
        let writes = plan.creates.len() + plan.updates.len() + plan.deletes.len();
        if self.items == 0 && writes > 0 {
            text.push_str(LIST_HEAD);
        }
        text.push_str(&settled_comment(plan));
        for slice in plan.creates.iter().chain(&plan.updates) {
            self.items += 1;
            text.push_str(&item(slice)?);
        }
        let namespace = plan.service.split('/').next().unwrap_or_default();
        for name in &plan.deletes {
            self.items += 1;
            let (namespace, name) = (shell_quote(namespace), shell_quote(name));
            text.push_str(&format!("# kubectl -n {namespace} delete endpointslice {name}\n"));
        }
        Ok(text)
    }

    /// The end of the list.
    pub fn end(&self) -> &'static str {
        if self.items == 0 { "apiVersion: v1\nkind: List\nitems: []\n" } else { "" }
    }
}

fn item<T: Serialize>(object: &T) -> Result<String, serde_saphyr::ser::Error> {
    let text = yaml(object)?;
    let lines = text
        .lines()
        .enumerate()
        .map(|(number, line)| format!("{}{line}\n", if number == 0 { "- " } else { "  " }));
    Ok(lines.collect())
}
