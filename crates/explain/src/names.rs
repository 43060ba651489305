//! Names for slices that do not exist yet.
//!
//! The API server gives new slices random names. A plan that people pipe into `kubectl apply` needs
//! names, and the same plan should give the same names every time: they are drawn from the content.

use std::collections::BTreeSet;
use std::sync::Arc;

use zonewise_common::fnv::fnv64;
use zonewise_slices::plan::Plan;
use zonewise_slices::service::Service;
use zonewise_slices::slice::Slice;

/// The letters the API server draws from: no vowels, so no words.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The longest name the API server makes: a random tail of five is added to this much.
const LONGEST_BASE: usize = 63 - 5;

/// The slices a plan creates, each with a name that no stored slice has.
pub(crate) fn named(service: &Service, plan: &Plan, stored: &[Arc<Slice>]) -> Vec<Slice> {
    let mut taken: BTreeSet<String> = stored.iter().map(|slice| slice.name().to_owned()).collect();
    let creates = plan.families.iter().flat_map(|family| &family.creates);
    creates
        .map(|slice| {
            let name = free_name(service, slice, &taken);
            taken.insert(name.clone());
            Slice { name: Some(name.into()), ..slice.clone() }
        })
        .collect()
}

fn free_name(service: &Service, slice: &Slice, taken: &BTreeSet<String>) -> String {
    let base: String = format!("{}-", service.name).chars().take(LONGEST_BASE).collect();
    let mut names = (0..).map(|number| format!("{base}{}", tail(service, slice, number)));
    names.find(|name| !taken.contains(name)).unwrap_or_default()
}

/// Five letters from who the slice is: its Service, family, ports, subset, and how many of these
/// names are taken.
/// Not from its endpoints, so that a plan made a moment later writes the same slice.
fn tail(service: &Service, slice: &Slice, number: usize) -> String {
    let subset = slice.subset();
    let text = format!(
        "{}/{}/{}/{}/{:?}/{:?}/{number}",
        service.namespace, service.name, service.uid, slice.family, slice.ports, subset
    );
    let mut hash = fnv64(text.as_bytes());
    let mut letters = String::with_capacity(5);
    for _ in 0..5 {
        letters.push(char::from(LETTERS[(hash % 27) as usize]));
        hash /= 27;
    }
    letters
}
