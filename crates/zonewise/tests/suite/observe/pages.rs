//! The output on the documentation's pages is real. To renew it:
//! `UPDATE_DOCS=1 cargo test -p zonewise --test suite observe::pages`.
//!
//! A block that begins with `$ zonewise …` is that command and what it prints.

use crate::observe::run::{root, run};

const PAGES: [&str; 6] =
    ["plan.md", "route.md", "explain.md", "lint.md", "why-no-hints.md", "evacuate.md"];

const RENEW: &str = "UPDATE_DOCS=1 cargo test -p zonewise --test suite observe::pages";

const FENCE: &str = "```console\n$ zonewise ";

/// The page with every block as the program prints it now.
fn renewed(page: &str) -> String {
    let mut parts = page.split(FENCE);
    let mut text = parts.next().unwrap().to_owned();
    for part in parts {
        let (command, rest) = part.split_once('\n').unwrap();
        let (_, after) = rest.split_once("```\n").unwrap();
        let ran = run(&command.split(' ').collect::<Vec<_>>());
        let shown = format!("{}{}", ran.out, ran.err);
        text.push_str(&format!("{FENCE}{command}\n{shown}```\n{after}"));
    }
    text
}

#[test]
fn the_pages_show_what_the_program_prints() {
    for name in PAGES {
        let path = root().join("docs").join(name);
        let page = std::fs::read_to_string(&path).unwrap();
        let now = renewed(&page);
        assert!(page.contains(FENCE), "{name} shows no command");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &now).unwrap();
        } else {
            assert_eq!(page, now, "docs/{name} is out of date: run {RENEW}");
        }
    }
}
