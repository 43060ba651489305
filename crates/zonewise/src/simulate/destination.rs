//! Where the results of a simulation go.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::NamedTempFile;

/// Standard output, or a file that appears only when it is complete.
pub(super) enum Destination {
    Stdout(BufWriter<io::Stdout>),
    /// A pipe or device: there is nothing to put in its place.
    Special(BufWriter<File>),
    File {
        writer: BufWriter<File>,
        temporary: NamedTempFile,
        path: PathBuf,
    },
}

impl Destination {
    /// Opens it; a file is checked now, not after an hour of work.
    pub(super) fn open(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else {
            return Ok(Self::Stdout(BufWriter::new(io::stdout())));
        };
        // Through a link, to what it points at.
        let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let failed = || format!("cannot write {}", path.display());
        if std::fs::metadata(&target).is_ok_and(|known| !known.is_file()) {
            let file = File::options().write(true).open(&target).with_context(failed)?;
            return Ok(Self::Special(BufWriter::new(file)));
        }
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
        let temporary = tempfile::Builder::new()
            .prefix(".zonewise-")
            .permissions(permissions())
            .tempfile_in(folder.unwrap_or(Path::new(".")))
            .with_context(failed)?;
        let writer = BufWriter::new(temporary.reopen()?);
        Ok(Self::File { writer, temporary, path: target })
    }

    /// Whether binary output may be written here: a terminal cannot show it.
    pub(super) fn binary_is_fine(&self) -> bool {
        !matches!(self, Self::Stdout(_)) || !io::stdout().is_terminal()
    }

    /// Flushes, and lets the file appear.
    pub(super) fn finish(self) -> Result<()> {
        match self {
            Self::Stdout(mut out) => Ok(out.flush()?),
            Self::Special(mut out) => Ok(out.flush()?),
            Self::File { mut writer, temporary, path } => {
                writer.flush()?;
                temporary
                    .persist(&path)
                    .with_context(|| format!("cannot write {}", path.display()))?;
                Ok(())
            }
        }
    }
}

/// What `open(2)` would give a new file: readable by all, unless the umask says otherwise.
fn permissions() -> std::fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    std::fs::Permissions::from_mode(0o666)
}

impl Write for Destination {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(out) => out.write(buffer),
            Self::Special(out) => out.write(buffer),
            Self::File { writer, .. } => writer.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(out) => out.flush(),
            Self::Special(out) => out.flush(),
            Self::File { writer, .. } => writer.flush(),
        }
    }
}
