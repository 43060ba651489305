//! Writes the corpus of every target into a folder: one folder per target, one file per input.
//!
//!     cargo run -p zonewise-fuzzing --example corpus -- fuzz/corpus

use std::fs;
use std::path::PathBuf;

use zonewise_fuzzing::TARGETS;

fn main() -> std::io::Result<()> {
    let missing = || std::io::Error::other("name the folder to write to");
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or_else(missing)?);
    for target in &TARGETS {
        let folder = folder.join(target.name);
        fs::create_dir_all(&folder)?;
        for (number, bytes) in (target.corpus)().iter().enumerate() {
            fs::write(folder.join(format!("seed-{number}")), bytes)?;
        }
    }
    Ok(())
}
