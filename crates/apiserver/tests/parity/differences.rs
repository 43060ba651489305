//! The accepted differences, and why. `docs/apiserver.md` shows them.

use std::collections::BTreeSet;

/// An accepted difference.
pub(crate) struct Listed {
    /// A group, or `*` for all.
    pub(crate) group: &'static str,
    /// Requests of the group, or `*` for all.
    pub(crate) requests: &'static [&'static str],
    /// A JSON pointer into the answer, with everything below it; `*` stands for any one step.
    pub(crate) field: &'static str,
    pub(crate) why: &'static str,
}

/// One request of an entry: the index in the list, and the pattern of the request.
pub(crate) type Entry = (usize, &'static str);

impl Listed {
    /// Everything that is listed.
    pub(crate) fn all() -> impl Iterator<Item = Entry> {
        let each = |(at, one): (usize, &'static Self)| one.requests.iter().map(move |r| (at, *r));
        DIFFERENCES.iter().enumerate().flat_map(each)
    }

    /// Entries of some groups that did not occur.
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

    /// The entry that lists a difference.
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

/// All accepted differences.
pub(crate) const DIFFERENCES: &[Listed] = &[
    listed(
        "*",
        &["*"],
        "/body/columnDefinitions/*/description",
        "Descriptions of columns are our own.",
    ),
    listed(
        "*",
        &["*"],
        "/headers/warning",
        "There are no warnings about unknown, duplicate or deprecated fields.",
    ),
    listed(
        "types",
        &["an unknown field, strictly", "a field twice, strictly"],
        "",
        "`fieldValidation=Strict` is not followed.",
    ),
    listed(
        "types",
        &["an unknown field", "an unknown field, ignored"],
        "/body/color",
        "Unknown fields are kept.",
    ),
    listed(
        "types",
        &["an unknown field", "an unknown field, ignored"],
        "/body/metadata/managedFields",
        "Unknown fields have managers, too.",
    ),
    listed(
        "types",
        &["an unknown field of a Service"],
        "/body/spec/color",
        "Unknown fields are kept.",
    ),
    listed(
        "types",
        &["an unknown field of a Service"],
        "/body/metadata/managedFields/0/fieldsV1/f:spec/f:color",
        "Unknown fields have managers, too.",
    ),
    listed(
        "types",
        &["a null as a value"],
        "/body/data",
        "A value that is `null` is absent, and not an empty text.",
    ),
    listed(
        "types",
        &["a null as a value"],
        "/body/metadata/managedFields",
        "A value that is `null` is absent, and has no manager.",
    ),
    listed(
        "patch-json",
        TYPED,
        "",
        "The result of a patch is a JSON value: its types are not checked, and unknown fields are kept.",
    ),
    listed(
        "patch-merge",
        &["a wrong type", "a list for a map", "an unknown field"],
        "",
        "Likewise.",
    ),
    listed("patch-strategic", TYPED, "", "Likewise."),
    listed("apply-wrong", TYPED, "", "Likewise."),
    listed("options", &["strictly patched"], "", "Likewise."),
    listed("nodes-status", &["a wrong quantity"], "", "Likewise: quantities are strings."),
    listed(
        "nodes-status",
        &["*"],
        "/body/status/allocatable/memory",
        "Quantities are not normalized.",
    ),
    listed(
        "slices-endpoints",
        &["a zone without a name"],
        "/body/endpoints/0/hints/forZones/0/name",
        "Empty strings are not added.",
    ),
    listed(
        "apply-status",
        &["gone", "read"],
        "/body/status/conditions/0/status",
        "Empty strings are not added.",
    ),
    listed(
        "metadata",
        &["another kind"],
        "",
        "A patch that changes the kind is refused as a body of another kind is.",
    ),
    listed(
        "metadata",
        &["a version"],
        "/body/metadata/resourceVersion",
        "Dry runs show no resourceVersion.",
    ),
    listed(
        "metadata",
        &["another deletion", "another uid"],
        "/body/details/causes",
        "kube-apiserver lists this cause twice.",
    ),
    listed(
        "pods-end",
        &["a finalizer more"],
        "/body/details/causes",
        "kube-apiserver lists this cause twice.",
    ),
    listed(
        "finalizers",
        &["none more"],
        "/body/details/causes",
        "kube-apiserver lists this cause twice.",
    ),
    listed(
        "metadata",
        &["two that control"],
        "/body",
        "Fields of objects in the message are in another order.",
    ),
    listed(
        "services-families",
        &["turned round"],
        "/body",
        "Only the first wrong address is reported.",
    ),
    listed(
        "watches-refused",
        &["sendInitialEvents=true&resourceVersionMatch=Exact"],
        "/body",
        "Only the first cause is reported.",
    ),
    listed(
        "pods-changes",
        &["a toleration more", "another grace", "another node"],
        "/body",
        "A shorter message, without the difference of the specs.",
    ),
    listed("selectors", &["labels zonewise.dev/=y"], "/body/message", "A shorter message."),
    listed(
        "services-changes",
        &[
            "to a cluster address",
            "external",
            "and back",
            "traffic",
            "no traffic",
            "affinity",
            "no affinity",
            "read",
        ],
        "/body/metadata/managedFields",
        "Fields that are dropped with the type of a Service lose their managers.",
    ),
    listed("services-status", &["no balancer"], "/body/metadata/managedFields", "Likewise."),
    listed(
        "services-families",
        &["dual by hand", "single by hand", "to single"],
        "/body/metadata/managedFields",
        "The client that changes the families also becomes the manager of the addresses.",
    ),
    listed(
        "table-cidrs",
        &["table", "table with all of the objects"],
        "/body/rows/0/object/metadata/managedFields",
        "No controller has written the status of the ServiceCIDR.",
    ),
    listed(
        "pages",
        &["a token and version 0"],
        "/body",
        "The limit applies to resourceVersion=0 too.",
    ),
    listed(
        "pages",
        &["a token that is no base64", "a wrong token"],
        "/body/message",
        "Messages of another parser.",
    ),
    listed("patch-merge", &["empty", "no JSON"], "/body/message", "Messages of another parser."),
    listed("options", &["deleted with no JSON"], "/body/message", "Messages of another parser."),
    listed("apply-wrong", &["no YAML"], "/body/message", "Messages of another parser."),
    listed(
        "wrong-bodies",
        &[
            "a list",
            "a list of objects",
            "a number",
            "a pod as a configmap",
            "another kind",
            "deep",
            "half a body",
            "more than an object",
            "no JSON",
            "no UTF-8",
            "no body",
            "wrong letters",
        ],
        "/body/message",
        "Messages of another parser, and names of Go types.",
    ),
    listed(
        "forms-bodies",
        &[
            "a half",
            "a prefix",
            "a wrong type",
            "another kind",
            "another prefix",
            "no bytes",
            "protobuf as JSON",
        ],
        "/body/message",
        "Messages of another parser, and names of Go types.",
    ),
    listed("forms-bodies", &["no UTF-8"], "", "Strings that are not UTF-8 are not read."),
    listed(
        "forms-bodies",
        &["encoded once more"],
        "",
        "A content encoding inside of protobuf is refused, and not ignored.",
    ),
    listed("options", &["yaml back"], "", "YAML is accepted in requests, but not in responses."),
    listed(
        "discovery",
        &["core versions"],
        "/body/serverAddressByClientCIDRs",
        "The address of the server.",
    ),
    listed(
        "discovery",
        &["core", "coordination v1", "discovery v1", "events v1", "networking v1"],
        "/body/resources/*/storageVersionHash",
        "There are no storage versions.",
    ),
    listed(
        "discovery-forms",
        &[
            "/api as application/vnd.kubernetes.protobuf",
            "/api as application/vnd.kubernetes.protobuf,application/json",
        ],
        "/body/serverAddressByClientCIDRs",
        "The address of the server.",
    ),
    listed(
        "discovery-forms",
        &[
            "/apis/coordination.k8s.io/v1 as application/vnd.kubernetes.protobuf",
            "/apis/coordination.k8s.io/v1 as application/vnd.kubernetes.protobuf,application/json",
        ],
        "/body/resources/*/storageVersionHash",
        "There are no storage versions.",
    ),
    listed("discovery", &["openapi v3"], "", "Only the parts that kubectl reads."),
    listed("discovery", &["version"], "/body", "The version of Kubernetes with a suffix."),
    listed(
        "wrong-paths",
        &[
            "/",
            "/api/v1/namespaces/%2e%2e/configmaps",
            "/api/v1/namespaces/{ns}/configmaps/%00",
            "/api/v1/namespaces/{ns}/configmaps/%FF%FE",
        ],
        "",
        "There is no index of paths; invalid paths get another error.",
    ),
    listed(
        "scale",
        &["after"],
        "/body/metadata/managedFields",
        "Managers of what `/scale` has written are listed in another order.",
    ),
    listed("k-get", &["get --raw /version"], "", "The version of Kubernetes with a suffix."),
    listed("k-ask", &["version"], "", "Likewise."),
    listed(
        "k-describe",
        &["describe ns {ns}"],
        "",
        "ResourceQuotas and LimitRanges are not served.",
    ),
];

/// Requests with values of wrong types or unknown fields.
const TYPED: &[&str] = &["a wrong type", "an unknown field"];

const fn listed(
    group: &'static str,
    requests: &'static [&'static str],
    field: &'static str,
    why: &'static str,
) -> Listed {
    Listed { group, requests, field, why }
}

/// `docs/apiserver.md` shows the list. To renew it:
/// `UPDATE_DOCS=1 cargo test -p zonewise-apiserver --test parity differences`.
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
        assert!(
            page == now,
            "docs/apiserver.md is out of date: run UPDATE_DOCS=1 cargo test -p zonewise-apiserver --test parity differences"
        );
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
