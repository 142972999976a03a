//! Goal: the layers of DESIGN §1 hold. Who may depend on whom is read from `cargo metadata`, not from good intentions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

/// What the workspace looks like to cargo.
struct Workspace {
    root: PathBuf,
    /// Name → (its directory below the root, names of its normal dependencies).
    members: BTreeMap<String, (PathBuf, BTreeSet<String>)>,
}

impl Workspace {
    fn read() -> Self {
        let metadata = nas_testkit::real_tree::cargo_metadata(&["--no-deps"]).expect("because cargo runs this test");
        let root = PathBuf::from(metadata["workspace_root"].as_str().expect("because metadata names the root"));
        let packages = metadata["packages"].as_array().expect("because metadata lists packages");
        let members = packages.iter().map(|package| Self::member(package, &root)).collect();
        Self { root, members }
    }

    fn member(package: &Value, root: &Path) -> (String, (PathBuf, BTreeSet<String>)) {
        let name = package["name"].as_str().expect("because a package has a name");
        let manifest = Path::new(package["manifest_path"].as_str().expect("because a package has a manifest"));
        let dir =
            manifest.parent().and_then(|dir| dir.strip_prefix(root).ok()).expect("because members are below the root");
        let dependencies = package["dependencies"].as_array().expect("because metadata lists dependencies");
        // "kind" is null for a normal dependency, else "dev" or "build": a test may reach below its layer.
        let normal = dependencies.iter().filter(|d| d["kind"] != "dev");
        let names = normal.filter_map(|d| d["name"].as_str()).map(str::to_owned).collect();
        (name.to_owned(), (dir.to_owned(), names))
    }

    /// The members below a folder.
    fn below<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = (&'a str, &'a BTreeSet<String>)> {
        let inside = self.members.iter().filter(move |(_, (dir, _))| dir.starts_with(folder));
        inside.map(|(name, (_, dependencies))| (name.as_str(), dependencies))
    }

    /// Those of `dependencies` that are ours.
    fn ours<'a>(&self, dependencies: &'a BTreeSet<String>) -> BTreeSet<&'a str> {
        dependencies.iter().map(String::as_str).filter(|name| self.members.contains_key(*name)).collect()
    }

    fn dependencies(&self, name: &str) -> &BTreeSet<String> {
        &self.members.get(name).expect("because this member exists").1
    }
}

/// Of `found`, what is not in `allowed`.
fn beyond<'a>(found: &BTreeSet<&'a str>, allowed: &[&str]) -> Vec<&'a str> {
    found.iter().copied().filter(|name| !allowed.contains(name)).collect()
}

/// What puts the layers together, and may therefore know all of them.
const COMPOSITION_ROOT: &str = "nasd";

/// Goal: a gateway knows the Door and plain types; the CLI speaks HTTP and knows plain types only.
#[test]
fn gateways_know_only_the_door() {
    let workspace = Workspace::read();
    let gateways: Vec<_> = workspace.below("services").filter(|(name, _)| *name != COMPOSITION_ROOT).collect();
    assert!(gateways.len() >= 3, "the scan found {gateways:?}");
    for (name, dependencies) in gateways {
        let allowed: &[&str] = if name == "nas" { &["nas-types"] } else { &["nas-types", "nas-door"] };
        let too_far = beyond(&workspace.ours(dependencies), allowed);
        assert!(too_far.is_empty(), "{name} may not depend on {too_far:?}");
    }
}

/// Goal: nothing below knows what is above: the store knows no trust, the trust layer no service, nobody the tests.
#[test]
fn nothing_reaches_up() {
    let workspace = Workspace::read();
    // (who, must not depend on anything in)
    let rules: [(&str, &[&str]); 5] = [
        ("appliance/types", &["appliance/store", "appliance/trust", "appliance/memory", "services", "tests"]),
        ("appliance/store", &["appliance/trust", "appliance/memory", "services", "tests"]),
        ("appliance/trust", &["appliance/memory", "services", "tests"]),
        ("appliance", &["services", "tests"]),
        ("services", &["tests"]),
    ];
    for (who, forbidden_folders) in rules {
        let forbidden: BTreeSet<&str> =
            forbidden_folders.iter().flat_map(|folder| workspace.below(folder)).map(|(name, _)| name).collect();
        for (name, dependencies) in workspace.below(who) {
            let reached: Vec<_> = workspace.ours(dependencies).intersection(&forbidden).copied().collect();
            assert!(reached.is_empty(), "{name} ({who}) may not depend on {reached:?}");
        }
    }
}

/// Goal: the conformance suite is black-box: it knows a client for NFS and nothing of this implementation, so that it
/// says the same of any other.
#[test]
fn the_conformance_suite_knows_no_implementation() {
    let workspace = Workspace::read();
    let too_far = beyond(&workspace.ours(workspace.dependencies("nas-conformance")), &["nas-nfsclient"]);
    assert!(too_far.is_empty(), "nas-conformance may not depend on {too_far:?}");
}

/// Goal: the Door is the only holder of a store among the libraries: no other trust crate names it.
#[test]
fn only_the_door_holds_the_store() {
    let workspace = Workspace::read();
    for (name, dependencies) in workspace.below("appliance/trust").filter(|(name, _)| *name != "nas-door") {
        let ours = workspace.ours(dependencies);
        assert!(!ours.contains("nas-store") && !ours.contains("nas-history"), "{name} reaches the store");
    }
    assert!(workspace.dependencies("nas-door").contains("nas-store"), "the rule is about the right crate");
}

/// Goal: pure decisions cannot do I/O even by accident: their crate is given nothing to do it with.
#[test]
fn decisions_have_no_hands() {
    let workspace = Workspace::read();
    let found = workspace.dependencies("nas-trust-core").iter().map(String::as_str).collect();
    let too_much = beyond(&found, &["nas-types", "serde", "thiserror", "blake3"]);
    assert!(too_much.is_empty(), "nas-trust-core may not depend on {too_much:?}");
}

/// What a pure crate must not name. Rust source only; comments and the tests at a file's end are left out.
const IMPURE: [&str; 12] = [
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "std::env",
    "std::io",
    "std::os",
    "SystemTime",
    "Instant",
    "tokio",
    "rustix",
    "libc::",
];

/// The first impure word of a source text, with its line.
fn impurity(source: &str) -> Option<(usize, &'static str)> {
    let product = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let code = product.lines().map(|line| line.split("//").next().unwrap_or_default());
    code.enumerate().find_map(|(number, line)| {
        let word = IMPURE.into_iter().find(|word| line.contains(word));
        word.map(|word| (number + 1, word))
    })
}

fn rust_files(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("because the crate has sources").flatten() {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// Goal: core decisions never do I/O or read a clock (DESIGN §1): the caller owns clocks, files and sockets.
#[test]
fn decisions_read_no_clock() {
    let workspace = Workspace::read();
    let mut files = Vec::new();
    rust_files(&workspace.root.join("appliance/trust/core/src"), &mut files);
    assert!(!files.is_empty());
    for file in files {
        let source = std::fs::read_to_string(&file).unwrap();
        let found = impurity(&source);
        assert!(found.is_none(), "{} line {}: `{}`", file.display(), found.unwrap().0, found.unwrap().1);
    }
}

/// Goal: the scan above can fail, and does not trip over comments.
#[test]
fn the_scan_sees_impurity() {
    assert_eq!(impurity("fn f() {\n    std::fs::read(\"x\");\n}"), Some((2, "std::fs")));
    assert_eq!(impurity("let now = std::time::Instant::now();"), Some((1, "Instant")));
    assert_eq!(impurity("// never call SystemTime::now here\nfn f() {}"), None);
    assert_eq!(impurity("fn f() {}\n#[cfg(test)]\nmod tests { use std::thread; }"), None);
    assert_eq!(impurity("#[cfg(test)]\nuse std::thread;"), Some((2, "std::thread")));
}

/// Goal: the required top level exists, and every member sits where a reader looks for it.
#[test]
fn the_top_level_is_as_required() {
    let workspace = Workspace::read();
    for name in ["Cargo.toml", "appliance", "services", "image", "hardware", "kernel-config", "tests", "README.md"] {
        assert!(workspace.root.join(name).exists(), "{name} is missing");
    }
    for name in ["image", "hardware", "kernel-config"] {
        assert!(workspace.root.join(name).join("README.md").exists(), "{name}/README.md is missing");
    }
    let allowed = ["appliance", "services", "image", "hardware", "kernel-config", "tests"];
    for (name, (dir, _)) in &workspace.members {
        assert!(allowed.iter().any(|top| dir.starts_with(top)), "{name} is in {}", dir.display());
    }
}

/// Goal: what does things is a library without a `main`; processes live in services and tests.
#[test]
fn the_appliance_has_no_main() {
    let workspace = Workspace::read();
    for (name, _) in workspace.below("appliance") {
        let dir = &workspace.members[name].0;
        assert!(!workspace.root.join(dir).join("src/main.rs").exists(), "{name} has a main");
    }
}
