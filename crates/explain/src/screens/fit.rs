//! Lines for a terminal of a certain width. Terminals break lines anywhere, also within words.
//!
//! Text is broken between words, and continues below its first word. What people copy is never broken, however
//! long it is: a command, or a word.

use super::Width;

/// The text with line breaks where a line is longer than the terminal is wide. Nothing changes where the width is
/// not known, as in a pipe, or where everything is asked for.
pub fn fit(text: &str, width: Width) -> String {
    let Width::Columns(columns) = width else { return text.to_owned() };
    text.split('\n').map(|line| broken(line, columns)).collect::<Vec<_>>().join("\n")
}

fn broken(line: &str, columns: usize) -> String {
    if shown(line) <= columns {
        return line.to_owned();
    }
    let (indent, below) = indents(line);
    let (mut out, mut column, mut is_first) = (" ".repeat(indent), indent, true);
    for unit in units(line.trim_start_matches(' ')) {
        let length = shown(unit);
        let space = unit.len() - unit.trim_start_matches(' ').len();
        // What does not fit below either stays where it is.
        let helps = below + length - space <= columns;
        if !is_first && column + length > columns && column > below && helps {
            out.push('\n');
            out.push_str(&" ".repeat(below));
            out.push_str(&unit[space..]);
            column = below + length - space;
        } else {
            out.push_str(unit);
            column += length;
        }
        is_first = false;
    }
    out
}

/// The number of columns that a text takes, without colours.
fn shown(text: &str) -> usize {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().map_or(0, |part| part.chars().count());
    let after = |part: &str| part.split_once('m').map_or(0, |(_, rest)| rest.chars().count());
    first + parts.map(after).sum::<usize>()
}

/// Where a line begins, and where its further lines begin: below the text after a number (`1. `) or after a key
/// (`asked      `), otherwise a little to the right.
fn indents(line: &str) -> (usize, usize) {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let rest = &line[indent..];
    let word = rest.split(' ').next().unwrap_or_default();
    let gap = rest[word.len()..].len() - rest[word.len()..].trim_start_matches(' ').len();
    let is_number = word.strip_suffix('.').is_some_and(|n| n.chars().all(|c| c.is_ascii_digit()));
    let below = match gap {
        1 if is_number => shown(word) + gap,
        2.. => shown(word) + gap,
        _ => CONTINUED,
    };
    (indent, indent + below)
}

/// How far further lines are indented.
const CONTINUED: usize = 2;

/// The parts of a line that are not broken, each with the space before it: words, commands, and what is between
/// backquotes.
fn units(line: &str) -> Vec<&str> {
    let (mut units, mut start) = (Vec::new(), 0);
    while start < line.len() {
        let word = start + (line[start..].len() - line[start..].trim_start_matches(' ').len());
        let end = end_of_unit(&line[word..]).map_or(line.len(), |length| word + length);
        units.push(&line[start..end]);
        start = end;
    }
    units
}

/// The length of the unit that a text begins with; `None` if that is all of it.
fn end_of_unit(text: &str) -> Option<usize> {
    if text.starts_with("kubectl ") {
        return text.find(" (");
    }
    let word = text.find(' ')?;
    match text[..word].find('`') {
        // The backquote that ends it can be in a later word.
        Some(open) if !text[open + 1..word].contains('`') => {
            let close = open + 1 + text[open + 1..].find('`')? + 1;
            text[close..].find(' ').map(|rest| close + rest)
        }
        _ => Some(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(columns: usize, text: &str) -> String {
        fit(text, Width::Columns(columns))
    }

    #[test]
    fn text_is_broken_between_words() {
        assert_eq!(at(12, "why: because it is so"), "why: because\n  it is so");
        assert_eq!(at(12, "short"), "short");
        assert_eq!(fit("why: because it is so", Width::Usual), "why: because it is so");
        assert_eq!(fit("why: because it is so", Width::Wide), "why: because it is so");
    }

    #[test]
    fn further_lines_begin_below_the_text() {
        assert_eq!(
            at(16, "  asked    one two three"),
            "  asked    one\n           two\n           three"
        );
        assert_eq!(at(14, "  1. one two three"), "  1. one two\n     three");
    }

    #[test]
    fn what_people_copy_is_not_broken() {
        let command = "  1. kubectl -n shop annotate service web key=value";
        assert_eq!(at(20, command), command);
        assert_eq!(
            at(30, "label it: kubectl label node n zone=Z (tried with a)"),
            "label it:\n  kubectl label node n zone=Z\n  (tried with a)"
        );
        assert_eq!(
            at(26, "a word; see `zonewise explain web` then"),
            "a word; see\n  `zonewise explain web`\n  then"
        );
        assert_eq!(at(4, "averylongword"), "averylongword");
    }

    #[test]
    fn colours_take_no_room() {
        let text = "\u{1b}[1mone two\u{1b}[0m";
        assert_eq!(at(7, text), text);
        assert_eq!(at(6, text), "\u{1b}[1mone\n  two\u{1b}[0m");
    }
}
