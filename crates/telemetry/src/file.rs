//! Configuration files in YAML, with errors that name file, line and column.

use std::io::Read;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_saphyr::Location;
use thiserror::Error;

/// The largest file that is read: configurations written by people are far smaller.
const MAX_BYTES: u64 = 1024 * 1024;

/// Why a configuration file cannot be used.
#[derive(Debug, Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read {file}: {source}")]
    Unreadable {
        /// The file.
        file: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Its contents are invalid.
    #[error("{position}: {message}")]
    Invalid {
        /// File, line and column.
        position: String,
        /// What is wrong there.
        message: String,
    },
}

impl FileError {
    /// An error that concerns the file as a whole.
    pub fn of(file: &str, message: String) -> Self {
        Self::Invalid { position: file.to_owned(), message }
    }
}

/// Reads a file; returns its name for messages, and its text.
///
/// # Errors
/// If it cannot be read, or is too large to be a configuration.
pub fn read(path: &Path) -> Result<(String, String), FileError> {
    let file = path.display().to_string();
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|open| open.take(MAX_BYTES + 1).read_to_string(&mut text))
        .map_err(|source| FileError::Unreadable { file: file.clone(), source })?;
    if text.len() as u64 > MAX_BYTES {
        let message = format!("larger than {MAX_BYTES} bytes: not a configuration file");
        return Err(FileError::of(&file, message));
    }
    Ok((file, text))
}

/// Decodes one YAML document of a file.
///
/// # Errors
/// If the text is not YAML or does not fit `T`, with line and column.
pub fn decode<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, FileError> {
    serde_saphyr::from_str(text).map_err(|error| {
        let plain = error.without_snippet().to_string();
        let message = plain.lines().next().unwrap_or_default();
        // The position is in front already.
        let message = without_rust_types(message.split(" at line ").next().unwrap_or(message));
        FileError::Invalid { position: position(file, error.location()), message }
    })
}

/// `invalid u64` says nothing to people who write YAML.
fn without_rust_types(message: &str) -> String {
    match message.split_once("invalid u") {
        Some((before, bits)) if bits.starts_with(|first: char| first.is_ascii_digit()) => {
            format!("{before}not a whole number, 0 or more")
        }
        _ => message.to_owned(),
    }
}

/// File, line and column, for messages.
pub fn position(file: &str, location: Option<Location>) -> String {
    match location {
        Some(at) => format!("{file}:{}:{}", at.line(), at.column()),
        None => file.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn errors_name_file_line_and_column() {
        let decode = |text: &str| decode::<BTreeMap<String, u8>>("c.yaml", text);
        assert_eq!(decode("a: 1\nb: 2\n").unwrap(), [("a".into(), 1), ("b".into(), 2)].into());
        let wrong = decode("a: 1\nb: two\n").unwrap_err().to_string();
        assert_eq!(wrong, "c.yaml:2:4: not a whole number, 0 or more");
        assert_eq!(
            decode("a: -1\n").unwrap_err().to_string(),
            "c.yaml:1:4: not a whole number, 0 or more"
        );
    }

    #[test]
    fn missing_and_oversized_files_are_errors() {
        let missing = read(Path::new("/nowhere/c.yaml")).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read /nowhere/c.yaml: "), "{missing}");
        let endless = read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(endless, "/dev/zero: larger than 1048576 bytes: not a configuration file");
    }
}
