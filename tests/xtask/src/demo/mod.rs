//! `cargo xtask demo`: the overnight run, played on a real tree, step by step, as a person would see it.
//!
//! [`device`] builds, starts and stops nasd and runs the CLI on it; [`hands`] is the agent's side: an ordinary program on
//! the kernel's NFS client where there is one, else the user-space client. Every step checks what it shows; the first
//! one that does not hold ends the run and names itself.

pub(crate) mod device;
mod hands;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Args;

use crate::setup;
use device::{Device, json_text};
use hands::Hands;

/// Arguments of `cargo xtask demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Stop when the run is over; exit with 0 if every step held.
    #[arg(long)]
    pub(crate) once: bool,
    /// Where the embedded store lives.
    #[arg(long, value_name = "DIR", default_value = "nas-data")]
    pub(crate) data: PathBuf,
}

/// How long one waits for the automatic commit (5 s of quiet, and a slow machine).
const QUIET_PATIENCE: Duration = Duration::from_secs(60);
/// What the agent adds to an existing file.
const EDIT: &str = "\nReviewed overnight by cleo.\n";
/// What the agent writes anew.
const NOTES: &str = "# Release notes\n\n- Drafted overnight, on a branch.\n";

/// Plays it.
pub(crate) fn run(arguments: &DemoArgs) -> anyhow::Result<()> {
    setup::run_for_demo()?;
    let source = nas_testkit::real_tree().context("finding a real source tree")?;
    let mut device = Device::start(&arguments.data)?;
    let played = play(&device, &source);
    if let Err(error) = played {
        device.stop()?;
        return Err(error);
    }
    println!("\nEvery step held.");
    if arguments.once {
        return device.stop();
    }
    println!("The box is running at {} and goes on when this ends.", device.url());
    let state = device.state_dir().display().to_string();
    println!("  try:  NAS_URL={} NAS_STATE_DIR={state} {} status", device.url(), device.nas().display());
    println!("  stop: {}", device.leave_running());
    println!("The demo's passphrase is in {}; a real one is on no disk.", device.passphrase_file().display());
    Ok(())
}

/// Names the step when it fails.
fn step<T>(number: u32, what: &str, act: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    println!("\n--- {number}. {what}");
    act().with_context(|| format!("step {number} ({what}) does not hold"))
}

fn play(device: &Device, source: &Path) -> anyhow::Result<()> {
    let passphrase = device.passphrase_file().display().to_string();
    let into = step(1, "the owner takes a project into protected main", || {
        let into = device.free_directory()?;
        let source = source.display().to_string();
        let said = device.show(&["tree", "import", &source, "--into", &into, "--passphrase-file", &passphrase])?;
        ensure!(said.contains("imported"), "the CLI did not say that it imported");
        Ok(into)
    })?;
    let lease = step(2, "a run of cleo gets a lease and a branch, for this project only", || {
        let paths = format!("{into}/**");
        let said = device.show(&[
            "lease",
            "create",
            "--role",
            "cleo",
            "--paths",
            &paths,
            "--actions",
            "list,read,write,propose",
            "--ttl",
            "4h",
            "--purpose",
            "Draft the release notes",
        ])?;
        word(&said, "lse_")
    })?;
    let mut hands = step(3, "the sandbox mounts the branch", || Hands::mount(device, &lease, &into))?;
    let work =
        step(4, "an ordinary program works there; main does not change", || edit(device, &mut hands, &lease, &into))?;
    step(5, "a sync and some quiet make commits on the branch", || {
        let started = Instant::now();
        loop {
            let branch = device.json(&["--lease", &lease, "branch", "show"])?;
            if branch["tip"] != branch["base"] && branch["dirty_paths"] == 0 {
                break;
            }
            ensure!(started.elapsed() < QUIET_PATIENCE, "no automatic commit: {branch}");
            std::thread::sleep(Duration::from_millis(200));
        }
        device.show(&["--lease", &lease, "tree", "log", "--view", "branch", "--limit", "3"]).map(drop)
    })?;
    let gate = step(6, "the run asks for a merge", || {
        let said =
            device.show(&["--lease", &lease, "propose", "--into", "main", "--why", "Draft the release notes"])?;
        ensure!(said.contains(&format!("({} files)", work.files_changed)), "{} files were changed", work.files_changed);
        word(&said, "gt_")
    })?;
    step(7, "the owner looks at the true diff, computed by the NAS", || {
        let card = device.show(&["gate", "show", &gate])?;
        ensure!(card.contains("Reviewed overnight by cleo."), "the edit is not on the card");
        ensure!(card.contains(&work.deleted), "the deletion is not on the card");
        ensure!(!hands.main_has(device, &lease, &work.edited, EDIT)?, "main has the edit before the approval");
        Ok(())
    })?;
    let commit = step(8, "the owner approves exactly this", || {
        let said = device.show(&["gate", "approve", &gate, "--passphrase-file", &passphrase])?;
        let commit = said.split_whitespace().skip_while(|word| *word != "commit").nth(1);
        commit.map(str::to_owned).context("the CLI did not say which commit")
    })?;
    step(9, "main has it, and can say why", || {
        ensure!(hands.main_has(device, &lease, &work.edited, EDIT)?, "the merged edit is not in main");
        let said = device.show(&["explain", &commit])?;
        ensure!(said.contains(&lease) && said.contains(&gate), "the explanation names neither lease nor gate");
        ensure!(said.contains(&work.edited), "the explanation does not name what was read");
        Ok(())
    })?;
    step(10, "the record of all this is whole", || {
        let said = device.show(&["record", "verify"])?;
        ensure!(said.contains("verified"), "the record does not verify");
        Ok(())
    })?;
    hands.unmount(device)
}

/// What the agent did.
struct Work {
    /// Path of the edited file, below the imported directory.
    edited: String,
    /// Path of the deleted file.
    deleted: String,
    /// How many paths a merge changes.
    files_changed: usize,
}

fn edit(device: &Device, hands: &mut Hands, lease: &str, into: &str) -> anyhow::Result<Work> {
    let files = hands.list()?;
    println!("the mount shows {} files and directories at its root", files.len());
    let pick = |wanted: fn(&str) -> bool| files.iter().find(|name| wanted(name)).cloned();
    let edited = pick(|name| name.to_ascii_lowercase().starts_with("readme")).context("the tree has no README")?;
    // What every packaged crate has, and nobody misses.
    let renamed = pick(|name| name == "Cargo.toml.orig").context("the tree has no Cargo.toml.orig to rename")?;
    let deleted =
        pick(|name| name.to_ascii_uppercase().starts_with("LICENSE")).context("the tree has no licence to delete")?;
    hands.append(&edited, EDIT)?;
    hands.write("RELEASE-NOTES.md", NOTES)?;
    hands.rename(&renamed, "renamed-by-cleo.toml")?;
    hands.remove(&deleted)?;
    println!("edited {edited}, created RELEASE-NOTES.md, renamed {renamed}, deleted {deleted}");
    ensure!(hands.read(&edited)?.ends_with(EDIT), "the edit cannot be read back");
    if hands.main_has(device, lease, &edited, EDIT)? {
        bail!("main changed without a merge");
    }
    println!("main still has the old {into}/{edited}");
    // Edited, created and deleted count once each, a rename is a deletion and a creation.
    Ok(Work { edited, deleted, files_changed: 5 })
}

/// The first word that starts with `tag`.
fn word(text: &str, tag: &str) -> anyhow::Result<String> {
    let found = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').find(|word| word.starts_with(tag));
    found.map(str::to_owned).with_context(|| format!("the CLI named no {tag}…: {}", json_text(text)))
}
