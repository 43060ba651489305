//! Numbers in sentences.

use std::fmt::Display;

/// `1 endpoint`, `2 endpoints`.
pub fn counted<N: Copy + Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let plural = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{plural}")
}
