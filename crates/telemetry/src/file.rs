//! Configuration files: YAML that people write, read so that what is wrong is named with its place.

use std::io::Read;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_saphyr::Location;
use thiserror::Error;

/// More is no configuration that a person wrote.
const MAX_BYTES: u64 = 1024 * 1024;

/// Why a file cannot be used.
#[derive(Debug, Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read {file}: {source}")]
    Unreadable {
        /// The file.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is not what it should be.
    #[error("{place}: {message}")]
    Syntax {
        /// File, line and column.
        place: String,
        /// What is wrong there.
        message: String,
    },
}

impl FileError {
    /// Something is wrong with the file as a whole.
    pub fn of(file: &str, message: String) -> Self {
        Self::Syntax { place: file.to_owned(), message }
    }
}

/// The file's name for messages, and its text.
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
        let message = format!("more than {MAX_BYTES} bytes; this is no configuration");
        return Err(FileError::of(&file, message));
    }
    Ok((file, text))
}

/// What one document of a file says.
///
/// # Errors
/// With the line and column of what cannot be understood.
pub fn decode<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, FileError> {
    serde_saphyr::from_str(text).map_err(|error| {
        let plain = error.without_snippet().to_string();
        let message = plain.lines().next().unwrap_or_default();
        // Line and column stand in front already.
        let message = message.split(" at line ").next().unwrap_or(message).to_owned();
        FileError::Syntax { place: place(file, error.location()), message }
    })
}

/// A place in a file, for messages.
pub fn place(file: &str, location: Option<Location>) -> String {
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
    fn what_is_wrong_is_named_with_its_place() {
        let decode = |text: &str| decode::<BTreeMap<String, u8>>("c.yaml", text);
        assert_eq!(decode("a: 1\nb: 2\n").unwrap(), [("a".into(), 1), ("b".into(), 2)].into());
        let wrong = decode("a: 1\nb: two\n").unwrap_err().to_string();
        assert!(wrong.starts_with("c.yaml:2:4: ") && !wrong.contains("at line"), "{wrong}");
    }

    #[test]
    fn what_no_person_wrote_is_not_read() {
        let missing = read(Path::new("/nowhere/c.yaml")).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read /nowhere/c.yaml: "), "{missing}");
        let endless = read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(endless, "/dev/zero: more than 1048576 bytes; this is no configuration");
    }
}
