//! Logs: one line per event on standard error, as text for people or JSON for machines.
//!
//! The filter is `Targets` of `tracing_subscriber`: `info`, or `warn,zonewise_cluster=debug`. An invalid filter
//! stops the program at its start, because missing logs would be noticed too late.

use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::str::FromStr;
use std::sync::Mutex;

use tracing::Subscriber;
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people; in colour when standard error is a terminal.
    #[default]
    Text,
    /// One JSON object per line, the event's fields at the top level.
    Json,
}

impl FromStr for Format {
    type Err = LogError;

    fn from_str(text: &str) -> Result<Self, LogError> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(LogError::Format { format: text.to_owned() }),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

/// Why logging could not start.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Neither `text` nor `json`.
    #[error("invalid log format {format:?}: use text or json")]
    Format {
        /// The given format.
        format: String,
    },
    /// The filter does not parse.
    #[error(
        "invalid log filter {filter:?}: {source}; \
         use a level (info) or levels by module (warn,zonewise_cluster=debug)"
    )]
    Filter {
        /// The given filter.
        filter: String,
        /// The parser's error.
        source: ParseError,
    },
    /// A process has one log, and it was started before.
    #[error("logging was already started: start it once, in main")]
    Started,
}

/// Starts logging for the whole process.
///
/// # Errors
/// If the filter is invalid, or logging was started before.
pub fn start(format: Format, filter: &str) -> Result<(), LogError> {
    let colour =
        io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    subscriber(format, filter, colour, io::stderr)?.try_init().map_err(|_| LogError::Started)
}

/// Starts logging for the whole process, as text into a file.
///
/// # Errors
/// If the filter is invalid, or logging was started before.
pub fn start_in(file: File, filter: &str) -> Result<(), LogError> {
    let writer = Mutex::new(file);
    subscriber(Format::Text, filter, false, writer)?.try_init().map_err(|_| LogError::Started)
}

fn subscriber<W>(
    format: Format,
    filter: &str,
    colour: bool,
    writer: W,
) -> Result<Box<dyn Subscriber + Send + Sync>, LogError>
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let targets = Targets::from_str(filter)
        .map_err(|source| LogError::Filter { filter: filter.to_owned(), source })?;
    let lines = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(writer)
        .with_ansi(colour && format == Format::Text);
    Ok(match format {
        Format::Text => Box::new(lines.finish().with(targets)),
        Format::Json => Box::new(lines.json().flatten_event(true).finish().with(targets)),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: Format, filter: &str, events: impl FnOnce()) -> String {
        let captured = Captured::default();
        let writer = captured.clone();
        let subscriber = subscriber(format, filter, false, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, events);
        let bytes = captured.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn text_has_level_message_and_fields() {
        let line = logged(Format::Text, "info", || tracing::info!(zone = "a", "started"));
        assert!(line.contains(" INFO ") && line.ends_with("started zone=\"a\"\n"), "{line}");
        assert!(!line.contains('\u{1b}'), "no colour into a file: {line}");
    }

    #[test]
    fn json_is_one_flat_object_per_line() {
        let line = logged(Format::Json, "info", || tracing::warn!(pods = 3, "late"));
        let object: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(object["level"], "WARN");
        assert_eq!(object["message"], "late");
        assert_eq!(object["pods"], 3);
        assert!(object["timestamp"].as_str().unwrap().ends_with('Z'), "{line}");
    }

    #[test]
    fn the_filter_chooses_by_level_and_module() {
        let noisy = || {
            tracing::debug!(target: "noisy", "one");
            tracing::warn!(target: "noisy", "two");
        };
        let wanted = || tracing::debug!(target: "wanted", "three");
        let lines = logged(Format::Text, "warn,wanted=debug", || {
            noisy();
            wanted();
        });
        let messages: Vec<_> = lines.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
        assert_eq!(messages, ["two", "three"]);
    }

    #[test]
    fn a_bad_filter_is_named() {
        let error = start(Format::Text, "zonewise=loud").unwrap_err().to_string();
        assert!(error.starts_with("invalid log filter \"zonewise=loud\": "), "{error}");
    }

    #[test]
    fn formats_by_name() {
        for format in [Format::Text, Format::Json] {
            assert_eq!(format.to_string().parse::<Format>().unwrap(), format);
        }
        let error = "xml".parse::<Format>().unwrap_err().to_string();
        assert_eq!(error, "invalid log format \"xml\": use text or json");
    }
}
