//! JSON text without white space.

/// The text without white space between its tokens. It must be valid JSON.
pub(super) fn compact(text: &str) -> Box<str> {
    let (mut string, mut escaped) = (false, false);
    let kept = |c: &char| {
        let blank = !string && matches!(c, ' ' | '\n' | '\r' | '\t');
        string ^= *c == '"' && !escaped;
        escaped = string && *c == '\\' && !escaped;
        !blank
    };
    text.chars().filter(kept).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_go_and_strings_stay() {
        let text = "{ \"a b\" : [ 1 ,\n\t\"\\\" \\\\\" , \"x y\" ] }";
        assert_eq!(&*compact(text), r#"{"a b":[1,"\" \\","x y"]}"#);
    }
}
