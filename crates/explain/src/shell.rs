//! Words for a shell. Advice is copied into terminals, and names come from whoever wrote the
//! objects: what is no plain word is quoted, and control characters never get through.

/// A word that a shell takes as it is.
pub fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/=:".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    let quoted = text.chars().map(|c| match c {
        '\'' => "'\\''".to_owned(),
        c if c.is_control() => c.escape_default().to_string(),
        c => c.to_string(),
    });
    format!("'{}'", quoted.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::word;

    #[test]
    fn words_stay_words() {
        let rows = [
            ("web", "web"),
            ("topology.kubernetes.io/zone=eu-1a", "topology.kubernetes.io/zone=eu-1a"),
            ("", "''"),
            ("two words", "'two words'"),
            ("$(reboot)", "'$(reboot)'"),
            ("a'; reboot #", "'a'\\''; reboot #'"),
            ("a\nb", "'a\\nb'"),
        ];
        for (text, expected) in rows {
            assert_eq!(word(text), expected);
        }
    }
}
