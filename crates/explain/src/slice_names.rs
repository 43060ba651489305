//! Names for slices that do not exist yet.
//!
//! The API server gives new slices random names. A plan that people pipe into `kubectl apply` needs
//! names, and the same plan should have the same names every time. They are therefore derived from
//! the content.

use std::collections::BTreeSet;
use std::sync::Arc;

use zonewise_common::fnv::fnv64;
use zonewise_slices::plan::Plan;
use zonewise_slices::service::Service;
use zonewise_slices::slice::Slice;

/// The characters that the API server uses for random names (`alphanums` in
/// k8s.io/apimachinery/pkg/util/rand): no vowels, so that no words come out.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The API server shortens the prefix of a generated name to this length, so that 63 characters
/// remain with the five random ones (`MaxGeneratedNameLength` in
/// k8s.io/apiserver/pkg/storage/names).
const MAX_PREFIX: usize = 63 - 5;

/// The slices that a plan creates, each with a name that no stored slice has.
pub(crate) fn with_names(service: &Service, plan: &Plan, stored: &[Arc<Slice>]) -> Vec<Slice> {
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
    let prefix: String = format!("{}-", service.name).chars().take(MAX_PREFIX).collect();
    let mut names = (0..).map(|number| format!("{prefix}{}", suffix(service, slice, number)));
    names.find(|name| !taken.contains(name)).unwrap_or_default()
}

/// Five characters from the Service, address family, ports and subset of a slice, and a number that
/// is increased while the name is taken. Endpoints do not count, so that a plan made a moment later
/// writes the same slice.
fn suffix(service: &Service, slice: &Slice, number: usize) -> String {
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
