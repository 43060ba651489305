//! Names of custom heuristics: `<domain>/<name>`, so that they never meet ours.

use super::error::{ExpressionError, printable};

const RESERVED: &str = "zonewise.dev";

/// Refuses what is no such name.
pub(super) fn check(name: &str) -> Result<(), ExpressionError> {
    let refuse = |why| Err(ExpressionError::Name { name: shortened(name), why });
    let Some((domain, word)) = name.split_once('/') else {
        return refuse("expected <domain>/<name>, such as example.com/mine");
    };
    if domain.len() > 253 || !domain.split('.').all(is_label) {
        return refuse("the part before `/` must be a DNS name in lower case");
    }
    if domain == RESERVED || domain.strip_suffix(RESERVED).is_some_and(|rest| rest.ends_with('.')) {
        return refuse("the domain zonewise.dev is taken; use a domain of your own");
    }
    if !is_label(word) {
        return refuse("the part after `/` must be letters a to z, digits and `-`, at most 63");
    }
    Ok(())
}

fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn shortened(name: &str) -> String {
    printable(&name.chars().take(80).collect::<String>())
}
