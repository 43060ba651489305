//! `zonewise simulate` as a user meets it: the built program, its output, its exit codes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn zonewise(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_zonewise"))
        .arg("simulate")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn with_input(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_zonewise"))
        .arg("simulate")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_representative_points_as_a_table() {
    let output = zonewise(&["--dataset", "representative"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let table = stdout(&output);
    assert!(table.starts_with("22 inputs of representative\n"), "{table}");
    for name in zonewise_topology::heuristics::names() {
        assert!(table.contains(&format!("│ {name} ")), "{name} is missing:\n{table}");
    }
    assert_eq!(stderr(&output), "", "no progress bar and no noise in a pipe");
}

#[test]
fn wrong_usage_ends_with_2_and_says_what_would_be_right() {
    let rows: [(&[&str], &str); 20] = [
        (&["--heuristic", "lokal"], "unknown heuristic `lokal`; known are random, local,"),
        (
            &["--heuristic", "local:stop=3"],
            "heuristic `local` has no parameter `stop`; it has start",
        ),
        (&["--heuristic", "local:start=x"], "expected a whole number from 0 to 1000000000"),
        (&["--max-overload", "-0.1"], "expected a number of at least 0"),
        (&["--shard", "4/4"], "expected I/N with I from 0 to N-1, such as 0/4; found `4/4`"),
        (&["--shard", "0/0"], "expected I/N"),
        (&["--zones", "3"], "--nodes"),
        (
            &["--zones", "3", "--nodes", "5..1", "--endpoints", "1"],
            "the range ends before it begins",
        ),
        (
            &["--dataset", "kep-small", "--zones", "3", "--nodes", "1", "--endpoints", "1"],
            "cannot be used with",
        ),
        (&["--threads", "0"], "0 is not in 1..=1024"),
        (&["-o", "xml"], "possible values: table, csv, json, html, parquet"),
        (&["merge"], "FILE"),
        (&["--rows"], "rows are written as csv, json or parquet"),
        (&["--shard", "0/2", "-o", "html"], "a shard's partial result is JSON"),
        (&["--shard", "5/18446744073709551615"], "at most 30000 shards are possible"),
        (
            &["--heuristic", "local", "--max-overload", "0.5"],
            "--max-overload is for the heuristic `balanced`",
        ),
        (&["--heuristic", "local", "--heuristic", "local"], "--heuristic local is given twice"),
        (&["--zones", "0", "--nodes", "1", "--endpoints", "1"], "expected 1 to 10000 zones"),
        (
            &["--zones", "90", "--nodes", "1..90", "--endpoints", "0..90"],
            "narrow the ranges or use --random",
        ),
        (
            &["--zones", "10000", "--nodes", "1000000000000", "--endpoints", "1", "--random", "5"],
            "numbers of an input add up to at most 2^53",
        ),
    ];
    for (arguments, expected) in rows {
        let output = zonewise(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{arguments:?}");
    }
}

#[test]
fn what_fails_ends_with_1_and_names_the_cause() {
    let folder = scratch("failures");
    let empty = folder.join("empty.csv");
    std::fs::write(&empty, "").unwrap();
    let rows: [(&[&str], &str); 5] = [
        (&["--dataset", "nowhere.csv"], "cannot read file `nowhere.csv` (built in: kep-small,"),
        (&["--dataset", text(&folder)], "it is a folder; name a CSV file"),
        (&["--dataset", text(&empty)], "there is nothing in it; expected a header"),
        (&["--to", "/nowhere/at/all.html"], "cannot write /nowhere/at/all.html"),
        (&["timeline", "--scenario", "earthquake"], "(built in: one-by-one, rolling-update,"),
    ];
    for (arguments, expected) in rows {
        let output = zonewise(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", stderr(&output));
        let message = stderr(&output);
        assert!(
            message.starts_with("error: ") && message.contains(expected),
            "{arguments:?}: {message}"
        );
    }
}

#[test]
fn bad_rows_are_named_and_the_others_counted() {
    let input = "name,a,b\ngood,1 1,1 1\nshort,1 1\nnegative,1 -1,1 1\nlast,2 2,2 2\n";
    let output =
        with_input(&["--dataset", "-", "--heuristic", "random", "-o", "csv", "--rows"], input);
    assert!(output.status.success());
    let names: Vec<&str> =
        stdout(&output).lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(names, ["good", "last"]);
    assert_eq!(
        stderr(&output),
        "warning: standard input:3: expected 3 cells (a name and 2 zones), found 2\n\
         warning: standard input:4: column 2 (a): the number of endpoints is below 0; found `1 -1`\n"
    );
    let strict = with_input(&["--dataset", "-", "--strict"], input);
    assert_eq!(strict.status.code(), Some(1));
    assert!(
        stderr(&strict).contains("leave out --strict to skip it: standard input:3:"),
        "{}",
        stderr(&strict)
    );
}

#[test]
fn many_problems_are_counted_not_listed() {
    let mut input = String::from("name,a\n");
    (0..50).for_each(|row| input.push_str(&format!("r{row},x\n")));
    let output = with_input(&["--dataset", "-", "--heuristic", "random"], &input);
    assert!(output.status.success());
    assert_eq!(stderr(&output).lines().count(), 21);
    assert!(stderr(&output).ends_with("warning: 50 problems in all; the first 20 are shown\n"));
    assert!(stdout(&output).contains("50 rows left out because they could not be read\n"));
}

#[test]
fn shards_merge_to_the_whole() {
    let folder = scratch("shards");
    let set = ["--zones", "3", "--nodes", "1..4", "--endpoints", "0..12"];
    let mut parts = Vec::new();
    for index in 0..3 {
        let part = folder.join(format!("part-{index}.json"));
        let shard = format!("{index}/3");
        let output = zonewise(&[&set[..], &["--shard", &shard, "--to", text(&part)]].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        parts.push(part);
    }
    let files: Vec<&str> = parts.iter().map(|part| text(part)).collect();
    let formats = ["table", "csv", "json", "html"];
    for format in formats.into_iter().chain(cfg!(feature = "parquet").then_some("parquet")) {
        let whole = zonewise(&[&set[..], &["-o", format]].concat());
        let merged = zonewise(&[&["merge", "-o", format], &files[..]].concat());
        assert!(merged.status.success(), "{}", stderr(&merged));
        assert!(whole.stdout == merged.stdout, "{format} differs");
    }
    let incomplete = zonewise(&["merge", files[0], files[2]]);
    assert_eq!(incomplete.status.code(), Some(1));
    assert_eq!(stderr(&incomplete), "error: incomplete: of 3 shards these are missing: 1\n");
    let half = folder.join("half.json");
    std::fs::write(&half, &std::fs::read(&parts[0]).unwrap()[..300]).unwrap();
    let torn = zonewise(&["merge", text(&half)]);
    assert!(stderr(&torn).contains("half.json: not a partial result of `simulate --shard`"));
}

#[test]
fn a_file_appears_only_when_it_is_complete() {
    let folder = scratch("complete");
    let target = folder.join("out.csv");
    std::fs::write(&target, "what was there before").unwrap();
    let input = folder.join("in.csv");
    std::fs::write(&input, "name,a\ngood,1 1\nbad\n").unwrap();
    let arguments = ["--dataset", text(&input), "-o", "csv", "--rows", "--to", text(&target)];
    let failed = zonewise(&[&arguments[..], &["--strict"]].concat());
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "what was there before");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2, "nothing is left behind");
    assert!(zonewise(&arguments).status.success());
    assert!(std::fs::read_to_string(&target).unwrap().starts_with("heuristic,name,score,"));
}

/// What is written through a link goes to where it points; a pipe stays a pipe.
#[test]
fn links_are_followed_and_pipes_are_written_to() {
    let folder = scratch("special");
    let (link, target) = (folder.join("link.csv"), folder.join("target.csv"));
    std::fs::write(&target, "old").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let arguments = ["--dataset", "representative", "--heuristic", "random", "-o", "csv", "--to"];
    assert!(zonewise(&[&arguments[..], &[text(&link)]].concat()).status.success());
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(std::fs::read_to_string(&target).unwrap().starts_with("heuristic,rows,"));
    assert!(zonewise(&[&arguments[..], &["/dev/null"]].concat()).status.success());
    let device = std::fs::metadata("/dev/null").unwrap();
    assert!(!device.is_file(), "/dev/null is still a device");
}

/// A file that is one endless line ends with an error, not with all memory.
#[test]
fn an_endless_line_is_refused() {
    let output = zonewise(&["--dataset", "/dev/zero"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("line 1 is longer than 16 MiB; this is no CSV file"));
}

/// Text from files does not reach the terminal as it is.
#[test]
fn control_characters_are_escaped() {
    let steps = "name,a\n\u{1b}[31mevil,1 30000\n";
    let output = with_input(&["timeline", "--scenario", "-"], steps);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("step `\\u{1b}[31mevil` has more than 20000 endpoints"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_bad_row_stops_every_shard_when_strict() {
    for shard in ["0/2", "1/2"] {
        let arguments = ["--dataset", "-", "--heuristic", "random", "--strict", "--shard", shard];
        let output = with_input(&arguments, "name,a\ngood,1 1\nbad\n");
        assert_eq!(output.status.code(), Some(1), "{shard}");
    }
}

#[test]
fn max_overload_is_for_balanced() {
    let run = |arguments: &[&str]| {
        let set = ["--dataset", "representative", "--heuristic", "balanced", "-o", "csv"];
        let output = zonewise(&[&set[..], arguments].concat());
        let line = stdout(&output).lines().nth(1).unwrap().to_owned();
        let in_zone: f64 = line.split(',').nth(7).unwrap().parse().unwrap();
        (line.split(',').next().unwrap().to_owned(), in_zone)
    };
    let (strict, looser) = (run(&[]), run(&["--max-overload", "0.2"]));
    assert_eq!((strict.0.as_str(), looser.0.as_str()), ("balanced", "balanced:max-overload=0.2"));
    assert!(looser.1 > strict.1);
}

#[test]
fn a_reader_that_stops_reading_is_no_failure() {
    let commands: [&[&str]; 4] = [
        &["simulate", "--heuristic", "random", "-o", "csv", "--rows"],
        &["simulate", "--heuristic", "random", "-o", "json"],
        &["simulate", "--heuristic", "random", "--shard", "0/3"],
        &["completions", "bash"],
    ];
    for command in commands {
        let mut child = Command::new(env!("CARGO_BIN_EXE_zonewise"))
            .args(command)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{command:?} {}", stderr(&output));
        assert_eq!(stderr(&output), "", "{command:?}");
    }
}

#[test]
fn a22_published_tables_by_command() {
    let output = zonewise(&["published", "--small"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("| local:start=5 | 79.98 | 79.98 | 79.9821 |"));
}

#[test]
fn timelines_in_all_formats() {
    let table = zonewise(&["timeline", "--heuristic", "auto"]);
    assert!(stdout(&table).starts_with("rolling-update: 25 steps\n"), "{}", stdout(&table));
    let json = zonewise(&["timeline", "--scenario", "node-loss", "-o", "json"]);
    let document: serde_json::Value = serde_json::from_str(stdout(&json)).unwrap();
    assert_eq!(
        (&document["kind"], &document["scenario"]),
        (&"Timeline".into(), &"node-loss".into())
    );
    let rows = document["heuristics"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["heuristic"].as_str().unwrap()).collect();
    assert_eq!(names, [vec!["reference"], zonewise_topology::heuristics::names()].concat());
    let steps = "name,a,b\nbefore,1 4,1 4\nafter,1 4,3 4\n";
    let csv =
        with_input(&["timeline", "--scenario", "-", "-o", "csv", "--heuristic", "auto"], steps);
    // The header, then the reference and `auto`: two states, and what is left when it is quiet.
    assert_eq!(stdout(&csv).lines().count(), 7, "{}", stdout(&csv));
}

#[test]
fn help_teaches() {
    let help = zonewise(&["--help"]);
    for expected in [
        "Examples:",
        "Heuristics:",
        ":max-overload=",
        "kep-large",
        "the best any router could score",
    ] {
        let text = stdout(&help).replace('\n', " ");
        assert!(text.contains(expected), "{expected} is missing");
    }
}
