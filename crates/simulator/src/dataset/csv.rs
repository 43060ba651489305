//! Files in the evaluation tool's format.
//!
//! ```csv
//! name,zone1,zone2
//! small,3 10,4 12
//! ```
//!
//! First the name of a row, then `nodes endpoints` for each zone. The format is the tool's to the
//! letter; what made the tool stop silently or crash is reported here with file, line and column,
//! and the rows after it are read. The `csv` crate is not used because it accepts broken
//! quoting silently.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};

use super::{Cell, Chunk, Columns, DatasetError, LARGEST_SUM, MAX_ZONES, Problem};

/// A record that goes on for longer than this has lost its closing quote.
const MOST_LINES: usize = 100;
/// No line is longer: the widest input has a few hundred kilobytes.
const LONGEST_LINE: u64 = 16 << 20;

/// Reads rows in file order.
pub struct Reader<R> {
    lines: Lines<R>,
    header: Vec<String>,
    width: usize,
    next_row: u64,
    bytes: Option<u64>,
    line: Vec<u8>,
    cells: Vec<String>,
}

impl<R: Read> Reader<R> {
    /// Reads the header. `bytes` is the length of the input, where known.
    pub fn open(file: &str, input: R, bytes: Option<u64>) -> Result<(Columns, Self), DatasetError> {
        let mut lines = Lines::new(file, input);
        let (mut line, mut cells) = (Vec::new(), Vec::new());
        let read = match lines.nonblank_line(&mut line) {
            Ok(true) => lines.record(&mut line, &mut cells).map(|_| ()),
            Ok(false) => {
                let message = "there is nothing in it; expected a header `name,zone1,…`";
                Err(Failure::Problem(lines.problem(1, message)))
            }
            Err(source) => Err(Failure::Read(source)),
        };
        match read {
            Ok(()) => {}
            Err(Failure::Problem(problem)) => return Err(problem.into()),
            Err(Failure::Read(source)) => {
                return Err(DatasetError::Read { file: file.to_owned(), source });
            }
        }
        let header: Vec<String> =
            cells.iter().skip(1).map(|name: &String| name.trim().to_owned()).collect();
        let width = header.len();
        if width == 0 {
            let message = "the header names no zone; expected `name,zone1,zone2,…`";
            return Err(lines.problem(1, message).into());
        }
        if width > MAX_ZONES {
            let message = format!("{width} zones; at most {MAX_ZONES} are possible");
            return Err(lines.problem(1, &message).into());
        }
        let columns = Columns::new(&header);
        Ok((columns, Self { lines, header, width, next_row: 0, bytes, line, cells }))
    }

    /// Reads up to `rows` rows; fewer only at the end. Rows that cannot be used go to `problems`.
    pub fn fill(
        &mut self,
        rows: u64,
        chunk: &mut Chunk,
        problems: &mut dyn FnMut(Problem),
    ) -> Result<(), DatasetError> {
        chunk.begin(self.next_row, self.width);
        while (chunk.rows() as u64) < rows {
            match self.next_row_into(chunk) {
                Ok(true) => {}
                Ok(false) => break,
                Err(Failure::Problem(problem)) => problems(problem),
                Err(Failure::Read(source)) => {
                    return Err(DatasetError::Read { file: self.lines.file.clone(), source });
                }
            }
        }
        self.next_row += chunk.rows() as u64;
        Ok(())
    }

    /// Appends the next row; false at the end.
    fn next_row_into(&mut self, chunk: &mut Chunk) -> Result<bool, Failure> {
        let before = chunk.cells.len();
        let mut line = std::mem::take(&mut self.line);
        let read = self.lines.nonblank_line(&mut line).map_err(Failure::Read);
        let result = match read {
            Ok(true) if plain(&line).is_some() => {
                let fields =
                    plain(&line).unwrap_or_default().split(',').map(without_leading_blanks);
                self.row(self.lines.line, fields, chunk)
            }
            Ok(true) => self
                .lines
                .record(&mut line, &mut self.cells)
                .and_then(|start| self.row(start, self.cells.iter().map(String::as_str), chunk)),
            Ok(false) => return Ok(false),
            Err(failure) => Err(failure),
        };
        self.line = line;
        if result.is_err() {
            chunk.cells.truncate(before);
        }
        result.map(|()| true)
    }

    /// How far reading has come, 0 to 1, where the length is known.
    pub fn progress(&self) -> Option<f64> {
        self.bytes.map(|bytes| self.lines.bytes_read as f64 / bytes.max(1) as f64)
    }

    /// Appends a row from its fields: its name, then the zones.
    fn row<'a>(
        &self,
        line: u64,
        mut fields: impl Iterator<Item = &'a str> + Clone,
        chunk: &mut Chunk,
    ) -> Result<(), Failure> {
        let found = fields.clone().count();
        if found != self.width + 1 {
            let (expected, zones) = (self.width + 1, self.width);
            let message =
                format!("expected {expected} cells (a name and {zones} zones), found {found}");
            return Err(Failure::Problem(self.lines.problem(line, &message)));
        }
        let name = fields.next().unwrap_or_default();
        let (mut nodes, mut endpoints) = (0u64, 0u64);
        for (index, text) in fields.enumerate() {
            let wrong = |message: String| {
                let zone = self.header[index].escape_debug();
                let message = format!("column {} ({zone}): {message}", index + 2);
                Failure::Problem(self.lines.problem(line, &message))
            };
            let cell = parse_cell(text).map_err(wrong)?;
            let sums = (nodes.checked_add(cell.nodes), endpoints.checked_add(cell.endpoints));
            (nodes, endpoints) = match sums {
                (Some(nodes), Some(endpoints)) if nodes.max(endpoints) <= LARGEST_SUM => {
                    (nodes, endpoints)
                }
                _ => return Err(wrong(String::from("the row's numbers add up to more than 2^53"))),
            };
            chunk.cells.push(cell);
        }
        chunk.names.push(name.into());
        Ok(())
    }
}

/// A line that needs no unquoting: most of them.
fn plain(line: &[u8]) -> Option<&str> {
    if line.contains(&b'"') { None } else { std::str::from_utf8(line).ok() }
}

fn without_leading_blanks(field: &str) -> &str {
    field.trim_start_matches([' ', '\t'])
}

/// `nodes endpoints`; what follows is ignored, as the tool does.
fn parse_cell(text: &str) -> Result<Cell, String> {
    let found = || format!("found `{}`", text.trim().escape_debug());
    let mut tokens = text.split_whitespace();
    let (Some(nodes), Some(endpoints)) = (tokens.next(), tokens.next()) else {
        return Err(format!(
            "expected `nodes endpoints`, two whole numbers such as `4 12`; {}",
            found()
        ));
    };
    let number = |what: &str, token: &str| match token.parse::<i64>() {
        Ok(value) => u64::try_from(value)
            .map_err(|_| format!("the number of {what} is below 0; {}", found())),
        Err(_) => Err(format!("expected a whole number of {what}; {}", found())),
    };
    Ok(Cell { nodes: number("nodes", nodes)?, endpoints: number("endpoints", endpoints)? })
}

enum Failure {
    Read(std::io::Error),
    Problem(Problem),
}

/// Records, from lines, with their line numbers.
struct Lines<R> {
    file: String,
    input: BufReader<R>,
    line: u64,
    bytes_read: u64,
    /// Lines that were taken into a record whose quote never closed, to be read again.
    again: VecDeque<Vec<u8>>,
}

impl<R: Read> Lines<R> {
    fn new(file: &str, input: R) -> Self {
        let input = BufReader::with_capacity(1 << 18, input);
        Self { file: file.to_owned(), input, line: 0, bytes_read: 0, again: VecDeque::new() }
    }

    fn problem(&self, line: u64, message: &str) -> Problem {
        Problem {
            order: line,
            place: format!("{}:{line}", self.file.escape_debug()),
            message: message.to_owned(),
        }
    }

    /// Splits the record that starts with the line just read; takes more lines while a quote is
    /// open. Returns the line it starts at.
    fn record(&mut self, text: &mut Vec<u8>, cells: &mut Vec<String>) -> Result<u64, Failure> {
        let start = self.line;
        let mut taken = Vec::new();
        loop {
            let message = match split(text, cells) {
                Split::Whole => return Ok(start),
                Split::Broken(message) => message,
                Split::OpenQuote => {
                    let mut line = Vec::new();
                    if taken.len() < MOST_LINES
                        && self.read_line(&mut line).map_err(Failure::Read)?
                    {
                        text.push(b'\n');
                        text.extend_from_slice(&line);
                        taken.push(line);
                        continue;
                    }
                    String::from("a double quote is opened and never closed")
                }
            };
            self.put_back(taken);
            return Err(Failure::Problem(self.problem(start, &message)));
        }
    }

    fn put_back(&mut self, lines: Vec<Vec<u8>>) {
        self.line -= lines.len() as u64;
        for line in lines.into_iter().rev() {
            self.again.push_front(line);
        }
    }

    fn nonblank_line(&mut self, line: &mut Vec<u8>) -> std::io::Result<bool> {
        while self.read_line(line)? {
            if !line.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn read_until_end(&mut self, line: &mut Vec<u8>) -> std::io::Result<usize> {
        let read = self.input.by_ref().take(LONGEST_LINE).read_until(b'\n', line)?;
        if read as u64 == LONGEST_LINE {
            let message =
                format!("line {} is longer than 16 MiB; this is no CSV file", self.line + 1);
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, message));
        }
        Ok(read)
    }

    /// Reads the next line, without its end; false at the end of the input.
    fn read_line(&mut self, line: &mut Vec<u8>) -> std::io::Result<bool> {
        line.clear();
        match self.again.pop_front() {
            Some(again) => *line = again,
            None if self.read_until_end(line)? == 0 => return Ok(false),
            None => self.bytes_read += line.len() as u64,
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        self.line += 1;
        if self.line == 1 && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        Ok(true)
    }
}

enum Split {
    Whole,
    OpenQuote,
    Broken(String),
}

/// Splits a record at its commas. Leading blanks of a cell are dropped, trailing ones kept.
fn split(record: &[u8], cells: &mut Vec<String>) -> Split {
    cells.clear();
    let Ok(text) = std::str::from_utf8(record) else {
        return Split::Broken(String::from("the line is not UTF-8 text"));
    };
    let mut rest = text;
    loop {
        let field = without_leading_blanks(rest);
        let (cell, after) = if let Some(quoted) = field.strip_prefix('"') {
            match quoted_cell(quoted) {
                Some(found) => found,
                None => return Split::OpenQuote,
            }
        } else {
            let (cell, after) = field.split_at(field.find(',').unwrap_or(field.len()));
            if cell.contains('"') {
                let column = cells.len() + 1;
                return Split::Broken(format!("column {column}: a double quote inside plain text"));
            }
            (cell.to_owned(), after)
        };
        cells.push(cell);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None if after.is_empty() => return Split::Whole,
            None => {
                let column = cells.len();
                return Split::Broken(format!(
                    "column {column}: text after a closing double quote"
                ));
            }
        }
    }
}

/// The text up to the closing quote, with doubled quotes resolved, and what follows it.
fn quoted_cell(text: &str) -> Option<(String, &str)> {
    let mut cell = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('"')?;
        cell.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(after) => {
                cell.push('"');
                rest = after;
            }
            None => return Some((cell, rest)),
        }
    }
}

/// A cell of an output file: quoted only where it must be, as the tool does.
pub(crate) fn quote(text: &str) -> std::borrow::Cow<'_, str> {
    if text.contains([',', '"', '\r', '\n']) || text.starts_with([' ', '\t']) {
        format!("\"{}\"", text.replace('"', "\"\"")).into()
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<String>, Vec<Vec<Cell>>, Vec<String>) {
        let (columns, mut reader) = Reader::open("in.csv", text.as_bytes(), None).unwrap();
        let mut chunk = Chunk::default();
        let mut problems = Vec::new();
        let mut note = |problem: Problem| problems.push(problem.to_string());
        reader.fill(1000, &mut chunk, &mut note).unwrap();
        assert_eq!(columns.zone_of.len(), chunk.width);
        let names = chunk.names.iter().map(|name| name.to_string()).collect();
        (names, (0..chunk.rows()).map(|row| chunk.row(row).to_vec()).collect(), problems)
    }

    fn cell(nodes: u64, endpoints: u64) -> Cell {
        Cell { nodes, endpoints }
    }

    #[test]
    fn a21_reads_the_tools_format() {
        let text = "\u{feff}name, b ,a\r\n\n plain ,1 2, 3 4 ignored\n\"0-(1, 1)\", +05 06 ,7 8\n\"two\nlines\",1 1,\"1 1\"";
        let (names, rows, problems) = read(text);
        assert_eq!(names, ["plain ", "0-(1, 1)", "two\nlines"]);
        let expected =
            [[cell(1, 2), cell(3, 4)], [cell(5, 6), cell(7, 8)], [cell(1, 1), cell(1, 1)]];
        assert_eq!(rows, expected);
        assert_eq!(problems, Vec::<String>::new());
    }

    #[test]
    fn every_bad_row_is_named_and_the_others_are_read() {
        let rows = [
            ("x,1 1", "in.csv:2: expected 3 cells (a name and 2 zones), found 2"),
            ("x,1 1,1 1,1 1", "in.csv:2: expected 3 cells (a name and 2 zones), found 4"),
            (
                "x,1 1,4",
                "in.csv:2: column 3 (b): expected `nodes endpoints`, two whole numbers such as `4 12`; found `4`",
            ),
            (
                "x,,1 1",
                "in.csv:2: column 2 (a): expected `nodes endpoints`, two whole numbers such as `4 12`; found ``",
            ),
            (
                "x,1 q,1 1",
                "in.csv:2: column 2 (a): expected a whole number of endpoints; found `1 q`",
            ),
            (
                "x,1.5 2,1 1",
                "in.csv:2: column 2 (a): expected a whole number of nodes; found `1.5 2`",
            ),
            (
                "x,3 -1,1 1",
                "in.csv:2: column 2 (a): the number of endpoints is below 0; found `3 -1`",
            ),
            (
                "x,99999999999999999999 1,1 1",
                "in.csv:2: column 2 (a): expected a whole number of nodes; found `99999999999999999999 1`",
            ),
            (
                "x,9007199254740991 1,9007199254740991 1",
                "in.csv:2: column 3 (b): the row's numbers add up to more than 2^53",
            ),
            ("x\"y,1 1,1 1", "in.csv:2: column 1: a double quote inside plain text"),
            ("\"x\"y,1 1,1 1", "in.csv:2: column 1: text after a closing double quote"),
            ("\"x,1 1,1 1", "in.csv:2: a double quote is opened and never closed"),
            (
                "x,\u{1b}[31m,1 1",
                "in.csv:2: column 2 (a): expected `nodes endpoints`, two whole numbers such as `4 12`; found `\\u{1b}[31m`",
            ),
        ];
        for (row, expected) in rows {
            let (names, cells, problems) = read(&format!("name,a,b\n{row}\ngood,1 2,3 4\n"));
            assert_eq!(problems, [expected], "{row}");
            assert_eq!(names, ["good"], "{row}");
            assert_eq!(cells, [[cell(1, 2), cell(3, 4)]], "{row}");
        }
    }

    #[test]
    fn unusable_headers_are_refused() {
        for (text, expected) in [
            ("", "in.csv:1: there is nothing in it; expected a header `name,zone1,…`"),
            ("name\nx\n", "in.csv:1: the header names no zone; expected `name,zone1,zone2,…`"),
            ("name,\"a\n", "in.csv:1: a double quote is opened and never closed"),
        ] {
            let error = Reader::open("in.csv", text.as_bytes(), None).err().unwrap();
            assert_eq!(error.to_string(), expected);
        }
        let error = Reader::open("in.csv", &b"name,\xff\n"[..], None).err().unwrap();
        assert_eq!(error.to_string(), "in.csv:1: the line is not UTF-8 text");
    }

    #[test]
    fn names_are_quoted_only_where_needed() {
        for (name, expected) in
            [("a b", "a b"), ("a,b", "\"a,b\""), (" a", "\" a\""), ("a\"b", "\"a\"\"b\"")]
        {
            assert_eq!(quote(name), expected);
        }
    }
}
