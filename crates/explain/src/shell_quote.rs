//! Quoting for shells.
//!
//! Suggested commands are copied into terminals, and the names in them come from whoever created the
//! objects. Anything but a plain word is quoted, and control characters are escaped.

/// Text as one word of a shell command.
pub fn shell_quote(text: &str) -> String {
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
    use super::shell_quote;

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
            assert_eq!(shell_quote(text), expected);
        }
    }
}
