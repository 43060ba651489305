//! The differences that stay, and why. `docs/apiserver.md` shows them.

use std::collections::BTreeSet;

/// A difference that is meant.
pub(crate) struct Listed {
    /// A group, or `*` for all.
    pub(crate) group: &'static str,
    /// Requests of the group, or `*` for all.
    pub(crate) requests: &'static [&'static str],
    /// A pointer into the answer, with all that is below it; a `*` stands for one step.
    pub(crate) field: &'static str,
    pub(crate) why: &'static str,
}

/// One request of an entry: its place in the list, and its pattern.
pub(crate) type Entry = (usize, &'static str);

impl Listed {
    /// Everything that is listed.
    pub(crate) fn all() -> impl Iterator<Item = Entry> {
        let each = |(at, one): (usize, &'static Self)| one.requests.iter().map(move |r| (at, *r));
        DIFFERENCES.iter().enumerate().flat_map(each)
    }

    /// What is listed of some groups and was not needed.
    pub(crate) fn unused(
        of: impl Fn(&str) -> bool,
        used: &BTreeSet<Entry>,
    ) -> impl Iterator<Item = String> {
        let unused = Self::all()
            .filter(move |entry| of(DIFFERENCES[entry.0].group) && !used.contains(entry));
        unused.map(|(at, request)| {
            let Self { group, field, .. } = &DIFFERENCES[at];
            format!("{group} / {request} {field}: listed, but no difference")
        })
    }

    /// Where a difference is listed.
    pub(crate) fn find(group: &str, request: &str, field: &str) -> Option<Entry> {
        Self::all().find(|(at, pattern)| {
            let known = *pattern == "*" || *pattern == request;
            known && DIFFERENCES[*at].covers(group, request, field)
        })
    }

    fn covers(&self, group: &str, request: &str, field: &str) -> bool {
        let is = |pattern: &str, text: &str| pattern == "*" || pattern == text;
        let mut steps = field.split('/');
        is(self.group, group)
            && self.requests.iter().any(|pattern| is(pattern, request))
            && self.field.split('/').all(|wanted| steps.next().is_some_and(|step| is(wanted, step)))
    }
}

/// All of them.
pub(crate) const DIFFERENCES: &[Listed] = &[];

/// `docs/apiserver.md` shows the list. To renew it: `UPDATE_DOCS=1 make test`.
#[test]
fn the_documentation_lists_every_difference() {
    const BEGIN: &str = "<!-- differences: generated -->\n";
    const END: &str = "<!-- end of differences -->\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/apiserver.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (head, rest) = page.split_once(BEGIN).unwrap();
    let (_, tail) = rest.split_once(END).unwrap();
    let now = format!("{head}{BEGIN}{}{END}{tail}", table());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, now).unwrap();
    } else {
        assert!(page == now, "docs/apiserver.md is out of date: run UPDATE_DOCS=1 make test");
    }
}

fn table() -> String {
    let mut table = "| requests | field of the answer | why |\n|---|---|---|\n".to_owned();
    for Listed { group, requests, field, why } in DIFFERENCES {
        let place = if *group == "*" { "all groups".to_owned() } else { format!("`{group}`") };
        let requests = match requests {
            ["*"] => place,
            some => format!("{place}: {}", some.join(", ")),
        };
        let field = if field.is_empty() { "all".to_owned() } else { format!("`{field}`") };
        table.push_str(&format!("| {requests} | {field} | {why} |\n"));
    }
    table
}
