//! The files of the page. They are part of this program: the page works without any other server.

use ring::digest::{SHA256, digest};
use zonewise_telemetry::server::Page;

struct Asset {
    path: &'static str,
    content_type: &'static str,
    text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const PICTURE: &str = "image/svg+xml; charset=utf-8";

macro_rules! assets {
    ($($path:literal $kind:ident $file:literal)*) => {
        const ASSETS: &[Asset] = &[$(Asset {
            path: $path,
            content_type: $kind,
            text: include_str!(concat!("../page/", $file)),
        }),*];
    };
}

assets! {
    "/" HTML "index.html"
    "/style.css" CSS "style.css"
    "/icon.svg" PICTURE "icon.svg"
    "/main.js" SCRIPT "main.js"
    "/dom.js" SCRIPT "dom.js"
    "/words.js" SCRIPT "words.js"
    "/state.js" SCRIPT "state.js"
    "/server.js" SCRIPT "server.js"
    "/live.js" SCRIPT "live.js"
    "/overview.js" SCRIPT "overview.js"
    "/service.js" SCRIPT "service.js"
    "/matrix.js" SCRIPT "matrix.js"
    "/endpoints.js" SCRIPT "endpoints.js"
    "/history.js" SCRIPT "history.js"
    "/what-if.js" SCRIPT "what-if.js"
    "/lab.js" SCRIPT "lab.js"
    "/export.js" SCRIPT "export.js"
}

/// What the page may do: nothing but read its own files and ask this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The headers of every answer.
pub(crate) fn headers() -> Vec<(&'static str, String)> {
    let headers = [
        ("content-security-policy", POLICY),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("x-frame-options", "DENY"),
    ];
    headers.into_iter().map(|(name, value)| (name, value.to_owned())).collect()
}

/// The file at a path; without its body if the client has it already.
pub(crate) fn page(path: &str, known: Option<&str>) -> Option<Page> {
    let asset = ASSETS.iter().find(|asset| asset.path == path)?;
    let tag = tag(asset.text);
    let mut page = match known == Some(&tag) {
        true => Page::new(304, asset.content_type, ""),
        false => Page::new(200, asset.content_type, asset.text),
    };
    // Asked for again each time: a newer program has other files.
    page.headers.push(("cache-control", "no-cache".to_owned()));
    page.headers.push(("etag", tag));
    Some(page)
}

fn tag(text: &str) -> String {
    let digest = digest(&SHA256, text.as_bytes());
    let hexadecimal: String =
        digest.as_ref().iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{hexadecimal}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that a browser loads, without compression.
    const BUDGET: usize = 150 * 1024;

    #[test]
    fn the_page_is_small() {
        let size: usize = ASSETS.iter().map(|asset| asset.text.len()).sum();
        assert!(size <= BUDGET, "{size} bytes");
    }

    #[test]
    fn every_file_is_served_and_every_import_exists() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/page");
        let files = std::fs::read_dir(folder).unwrap();
        let files: Vec<String> =
            files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        for file in &files {
            let path = if file == "index.html" { "/".to_owned() } else { format!("/{file}") };
            assert!(page(&path, None).is_some(), "{file} is not in the table");
        }
        for asset in ASSETS.iter().filter(|asset| asset.content_type == SCRIPT) {
            for line in asset.text.lines().filter(|line| line.starts_with("import ")) {
                let name = line.split('"').nth(1).and_then(|name| name.strip_prefix("./"));
                let name = name.unwrap_or_else(|| panic!("{}: {line}", asset.path));
                assert!(files.iter().any(|file| file == name), "{}: {line}", asset.path);
            }
        }
    }

    #[test]
    fn a_file_that_the_browser_has_is_not_sent_again() {
        let first = page("/style.css", None).unwrap();
        let tag = first.headers.iter().find(|(name, _)| *name == "etag").unwrap().1.clone();
        let again = page("/style.css", Some(&tag)).unwrap();
        assert_eq!((first.status, again.status, again.body.as_str()), (200, 304, ""));
        assert_eq!(page("/style.css", Some("\"other\"")).unwrap().status, 200);
        assert!(page("/../Cargo.toml", None).is_none());
    }

    /// Names, labels and annotations can be chosen by anyone: nothing of them may become markup or code.
    #[test]
    fn text_never_becomes_markup_or_code() {
        let words = [
            "innerHTML",
            "outerHTML =",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "DOMParser",
            "srcdoc",
            "javascript:",
        ];
        for asset in ASSETS.iter().filter(|asset| asset.content_type == SCRIPT) {
            for word in words {
                assert!(!asset.text.contains(word), "{} has {word}", asset.path);
            }
        }
        let index = page("/", None).unwrap().body;
        assert!(!index.contains("style=") && !index.contains(" on"), "the policy forbids both");
    }
}
