//! The stage `conformance`: the suite against a fresh box, as a user runs it; what it writes is the committed
//! `conformance.json`.

use anyhow::{Context as _, bail};

use crate::demo::device::Device;
use crate::program::{cargo, root, run as run_program, target_dir};

/// The committed result, at the workspace's root.
const FILE: &str = "conformance.json";

/// Runs the suite and compares. With `NAS_GOLDEN=write` the committed file is rewritten instead.
pub(crate) fn run() -> anyhow::Result<()> {
    run_program(&mut cargo(["build", "--locked", "--package", "nas-conformance"]))?;
    let parent = target_dir();
    std::fs::create_dir_all(&parent).context("creating the target directory")?;
    let dir =
        tempfile::Builder::new().prefix("conformance-").tempdir_in(&parent).context("making a place for the box")?;
    let mut device = Device::start(&dir.path().join("nas-data"))?;
    let result = against(&device, &dir.path().join(FILE));
    device.stop()?;
    let now = result?;
    let committed = root().join(FILE);
    if std::env::var_os("NAS_GOLDEN").is_some_and(|v| v == "write") {
        return Ok(std::fs::write(committed, now)?);
    }
    let kept = std::fs::read_to_string(&committed).unwrap_or_default();
    if kept == now {
        return Ok(());
    }
    for line in kept.lines().filter(|line| !now.lines().any(|other| other == *line)) {
        println!("- {line}");
    }
    for line in now.lines().filter(|line| !kept.lines().any(|other| other == *line)) {
        println!("+ {line}");
    }
    bail!("{FILE} is not what the suite found: run this stage with NAS_GOLDEN=write, then review the diff");
}

/// The file that the suite wrote.
fn against(device: &Device, out: &std::path::Path) -> anyhow::Result<String> {
    let text = |path: &std::path::Path| path.display().to_string();
    let (token, passphrase, out_text) = (text(&device.token_file()?), text(&device.passphrase_file()), text(out));
    let files = ["--token-file", &token, "--passphrase-file", &passphrase, "--out", &out_text];
    device.show(&[&["conformance", "run", "--url", &device.url(), "--nfs", device.nfs()][..], &files[..]].concat())?;
    std::fs::read_to_string(out).context("reading what the suite wrote")
}
