//! Messages about objects that cannot be used.

use serde_json::Value;

use super::type_meta::without_location;

/// `Pod shop/web-1`, or as much of it as the object has.
pub(super) fn subject(kind: Option<&str>, value: &Value) -> String {
    let field = |key: &str| value.get("metadata").and_then(|meta| meta.get(key)?.as_str());
    let name = match (field("namespace"), field("name")) {
        (Some(namespace), Some(name)) => format!(" {namespace}/{name}"),
        (None, Some(name)) => format!(" {name}"),
        _ => String::new(),
    };
    // Anyone can choose names: control characters must not reach a terminal.
    format!("{}{name}", kind.unwrap_or("object")).escape_debug().to_string()
}

/// Why `read` refuses an object, with the path of the field.
pub(super) fn message(value: &Value, read: impl Fn(&str) -> Option<serde_json::Error>) -> String {
    // With one field per line, the line of the error tells the field.
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    let Some(error) = read(&text) else {
        return "a field is set twice: remove one of them".to_owned();
    };
    let field = field(&text, error.line());
    let what = plain(&without_location(&error));
    if field.is_empty() { what } else { format!("`{field}`: {what}") }
}

/// The message of the serde library in plain words.
fn plain(message: &str) -> String {
    let wrong = ["invalid type: ", "invalid value: ", "invalid length "];
    let rest = wrong.iter().find_map(|prefix| message.strip_prefix(prefix));
    if let Some((found, wanted)) = rest.and_then(|rest| rest.split_once(", expected ")) {
        return format!(
            "{} is needed, not {}",
            expected(wanted),
            found.replace("map", "an object")
        );
    }
    match message.strip_prefix("missing field ") {
        Some(field) => format!("{field} is missing"),
        None => message.to_owned(),
    }
}

fn expected(wanted: &str) -> &str {
    match wanted {
        "a sequence" => "a list",
        "a boolean" => "true or false",
        "i32" | "i64" | "u16" | "u32" | "u64" => "a whole number",
        text if text.starts_with("struct ") => "an object",
        other => other,
    }
}

/// The path of the field at a line of pretty-printed JSON, which has one field per line.
fn field(text: &str, line: usize) -> String {
    let lines: Vec<&str> = text.lines().take(line).collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let Some(last) = lines.last() else { return String::new() };
    let (mut level, mut path, mut index) = (indent(last), Vec::new(), 0);
    // Upwards from the line: first its own key (or that of what it closes), then the keys of the
    // objects and lists around it.
    let mut own = true;
    for line in lines.iter().rev() {
        let (depth, trimmed) = (indent(line), line.trim_start());
        if depth > level || trimmed.starts_with(['}', ']']) {
            continue;
        }
        if depth == level && !own {
            index += 1;
            continue;
        }
        if !own && line.ends_with('[') {
            path.push(format!("[{index}]"));
        }
        if let Some((key, _)) = trimmed.strip_prefix('"').and_then(|rest| rest.split_once("\":")) {
            path.push(key.to_owned());
        }
        (level, own, index) = (depth, false, 0);
    }
    path.reverse();
    path.join(".").replace(".[", "[")
}
