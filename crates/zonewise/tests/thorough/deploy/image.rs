//! The archive that `scripts/image` packs. A small file stands for the program: to build the real one takes minutes.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::observe::run::{Ran, root};

/// Packs an image of one program for two architectures. Returns the digest that was printed, and the archive.
fn pack(program: &Path, output: &Path) -> (String, PathBuf) {
    let mut command = Command::new(root().join("scripts/image"));
    command.args(["amd64", "arm64"]).env("PROGRAM", program).env("OUTPUT", output);
    let ran: Ran = command.env("SOURCE_DATE_EPOCH", "1000000000").output().unwrap().into();
    assert_eq!(ran.code, 0, "{}", ran.err);
    let archive = format!("zonewise-{}.oci.tar", env!("CARGO_PKG_VERSION"));
    (ran.out.trim().to_owned(), output.join(archive))
}

/// The files of the archive, unpacked.
fn unpacked(archive: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let tar = Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(folder.path()).status();
    assert!(tar.unwrap().success());
    folder
}

/// A blob, once it is checked that its digest and size are what its descriptor says.
fn blob(image: &Path, descriptor: &Value) -> Vec<u8> {
    let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    let path = image.join("blobs/sha256").join(digest);
    let content = fs::read(&path).unwrap();
    assert_eq!(Some(content.len() as u64), descriptor["size"].as_u64(), "{descriptor}");
    let sum: Ran = Command::new("sha256sum").arg(&path).output().unwrap().into();
    assert_eq!(sum.out.split(' ').next(), Some(digest));
    content
}

fn document(image: &Path, descriptor: &Value) -> Value {
    serde_json::from_slice(&blob(image, descriptor)).unwrap()
}

/// Name, owner, mode and time of each entry of a layer.
fn entries(layer: &[u8]) -> String {
    let mut tar = Vec::new();
    flate2::read::GzDecoder::new(layer).read_to_end(&mut tar).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), tar).unwrap();
    let mut command = Command::new("tar");
    command.args(["--utc", "--numeric-owner", "-tvf"]).arg(file.path());
    let listed: Ran = command.output().unwrap().into();
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    listed.out.lines().map(words).collect::<Vec<_>>().join("\n")
}

#[test]
fn an_image_has_the_program_and_nothing_else_and_is_the_same_each_time() {
    let program = tempfile::NamedTempFile::new().unwrap();
    fs::write(program.path(), b"#!/bin/true\n").unwrap();
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (digest, archive) = pack(program.path(), here.path());
    let (again, second) = pack(program.path(), there.path());
    assert_eq!(digest, again);
    assert!(fs::read(&archive).unwrap() == fs::read(second).unwrap(), "the archives differ");

    let image = unpacked(&archive);
    let index: Value =
        serde_json::from_slice(&fs::read(image.path().join("index.json")).unwrap()).unwrap();
    let top = &index["manifests"][0];
    assert_eq!(top["digest"].as_str(), Some(digest.as_str()), "the digest that was printed");
    let name = format!("docker.io/library/zonewise:{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(top["annotations"]["io.containerd.image.name"], json!(name));
    let of_each = document(image.path(), top);
    let manifests = of_each["manifests"].as_array().unwrap();
    let architectures: Vec<&Value> =
        manifests.iter().map(|one| &one["platform"]["architecture"]).collect();
    assert_eq!(architectures, ["amd64", "arm64"]);
    for manifest in manifests {
        let manifest = document(image.path(), manifest);
        let config = document(image.path(), &manifest["config"]);
        assert_eq!(config["config"]["User"], json!("65532:65532"));
        assert_eq!(config["config"]["Entrypoint"], json!(["/usr/local/bin/zonewise"]));
        assert_eq!(config["created"], json!("2001-09-09T01:46:40Z"));
        let listed = entries(&blob(image.path(), &manifest["layers"][0]));
        let time = "2001-09-09 01:46";
        let expected = [
            format!("drwxr-xr-x 0/0 0 {time} ./"),
            format!("drwxr-xr-x 0/0 0 {time} usr/"),
            format!("drwxr-xr-x 0/0 0 {time} usr/local/"),
            format!("drwxr-xr-x 0/0 0 {time} usr/local/bin/"),
            format!("-rwxr-xr-x 0/0 12 {time} usr/local/bin/zonewise"),
        ];
        assert_eq!(listed, expected.join("\n"));
    }
}

/// What `scripts/archives` writes for these architectures, with `true` in the program's place: its checksums.
fn archives(architectures: &[&str], output: &Path) -> String {
    let mut command = Command::new(root().join("scripts/archives"));
    command.args(architectures).env("PROGRAM", "/bin/true").env("OUTPUT", output);
    command.env("URL", "https://example.com/files").env("HOMEPAGE", "https://example.com/zonewise");
    let ran: Ran = command.output().unwrap().into();
    assert_eq!(ran.code, 0, "{}", ran.err);
    fs::read_to_string(output.join("SHA256SUMS")).unwrap()
}

/// Krew refuses an archive whose checksum is another one, and a plugin without a page.
#[test]
fn archives_are_the_same_each_time_and_krew_finds_them() {
    let version = env!("CARGO_PKG_VERSION");
    let folder = tempfile::tempdir().unwrap();
    let sums = |name: &str, all: &[&str]| archives(all, &folder.path().join(name));
    let both = sums("both", &["amd64", "arm64"]);
    assert_eq!(sums("again", &["amd64", "arm64"]), both);
    let manifest = fs::read_to_string(folder.path().join("both/zonewise.yaml")).unwrap();
    for line in [format!("version: v{version}"), "homepage: https://example.com/zonewise".into()] {
        assert!(manifest.contains(&format!("  {line}\n")), "{line} is not in {manifest}");
    }
    for architecture in ["amd64", "arm64"] {
        let name = format!("zonewise-{version}-linux-{architecture}.tar.gz");
        let sum = both.lines().find_map(|line| line.strip_suffix(&format!("  {name}"))).unwrap();
        let expected = format!("uri: https://example.com/files/{name}\n      sha256: {sum}\n");
        assert!(manifest.contains(&expected), "{expected} is not in {manifest}");
    }
    let here = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    for (name, architectures, expected) in
        [("here", vec![], here), ("arm", vec!["arm64"], "arm64"), ("amd", vec!["amd64"], "amd64")]
    {
        let found = sums(name, &architectures);
        let archive = format!("zonewise-{version}-linux-{expected}.tar.gz");
        assert!(found.contains(&archive) && found.lines().count() == 3, "{found}");
    }
}

/// Every crate that is linked, and none that is not.
#[test]
fn the_list_of_parts_is_complete() {
    let parts = |features: &str| -> (BTreeSet<String>, Value) {
        let mut command = Command::new(root().join("scripts/sbom"));
        let ran: Ran =
            command.args(["x86_64-unknown-linux-gnu", features]).output().unwrap().into();
        assert_eq!(ran.code, 0, "{}", ran.err);
        let list: Value = serde_json::from_str(&ran.out).unwrap();
        let names = list["components"].as_array().unwrap().iter();
        (names.map(|one| one["name"].as_str().unwrap().to_owned()).collect(), list)
    };
    let (names, list) = parts("expressions");
    for linked in
        ["zonewise-controller", "zonewise-proxy", "tokio", "ring", "cel", "glibc", "rust-std"]
    {
        assert!(names.contains(linked), "{linked} is not in {names:?}");
    }
    for not_linked in
        ["zonewise-lab", "zonewise-apiserver", "parquet", "proptest", "serde_derive", "cc"]
    {
        assert!(!names.contains(not_linked), "{not_linked} is in the list");
    }
    assert!(parts("expressions,parquet,simulator").0.contains("parquet"));
    let known: BTreeSet<&str> = list["components"]
        .as_array()
        .unwrap()
        .iter()
        .chain([&list["metadata"]["component"]])
        .map(|one| one["bom-ref"].as_str().unwrap())
        .collect();
    for one in list["components"].as_array().unwrap() {
        assert!(one["licenses"][0]["expression"].is_string(), "no licence: {one}");
        assert_eq!(one["purl"].is_string(), one["hashes"].is_array(), "{one}");
    }
    for edge in list["dependencies"].as_array().unwrap() {
        let all = edge["dependsOn"].as_array().unwrap().iter().chain([&edge["ref"]]);
        for name in all {
            assert!(known.contains(name.as_str().unwrap()), "{name} is not a component");
        }
    }
}
