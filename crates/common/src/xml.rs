//! Text inside XML and HTML.

/// Text that cannot become markup, neither between tags nor as the value of an attribute.
///
/// Characters that XML 1.0 cannot express at all become U+FFFD, the replacement character.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' | '\r' => escaped.push(character),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            control if control.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn markup_and_what_xml_cannot_express_are_replaced() {
        assert_eq!(escape("<a b=\"c\" d='e'>&"), "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;");
        assert_eq!(escape("two\tcolumns\nand ä"), "two\tcolumns\nand ä");
        assert_eq!(escape("\u{0}\u{1b}[0m\u{ffff}"), "\u{fffd}\u{fffd}[0m\u{fffd}");
    }
}
