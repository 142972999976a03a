//! Looks at a data folder as a start of nasd would find it after a power cut: `nas-power-check DIR < promises`.
//!
//! A process of its own, so that nothing in memory helps. It opens ledger and store as nasd does and compares them with the
//! promises on standard input, one JSON line each. It exits with 0 when every one of them is kept.

use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};
use nas_e2e::promise::Promise;
use nas_ledger::{Head, Ledger};
use nas_store::{LiveDir, Options, Pointer, Reserve, Store};
use nas_types::fs::FsError;
use nas_types::lease::BranchName;
use nas_types::object::{EntryKind, Oid};
use nas_types::path::TreePath;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What has to be true, the latest word about each thing.
#[derive(Default)]
struct Promised {
    /// `None`: the name is gone.
    files: BTreeMap<(BranchName, TreePath), Option<String>>,
    head: Option<Head>,
    merge: Option<(Oid, Vec<(TreePath, String)>)>,
}

impl Promised {
    fn read() -> Result<Self> {
        let mut all = Self::default();
        for line in std::io::stdin().lock().lines() {
            match serde_json::from_str(&line?)? {
                Promise::Changing(branch, paths) => {
                    for path in paths {
                        all.files.remove(&(branch.clone(), path));
                    }
                }
                Promise::Holds(branch, path, content) => {
                    all.files.insert((branch, path), Some(content));
                }
                Promise::Gone(branch, path) => {
                    all.files.insert((branch, path), None);
                }
                Promise::Recorded(head) => {
                    all.head = Some(Head::from_hex(head.seq, &head.hash).context("a head is not hexadecimal")?);
                }
                Promise::Merged(commit, files) => all.merge = Some((commit, files)),
            }
        }
        Ok(all)
    }

    fn is_empty(&self) -> bool {
        self.files.is_empty() && self.head.is_none() && self.merge.is_none()
    }
}

fn run() -> Result<()> {
    let data = std::env::args_os().nth(1).context("usage: nas-power-check DIR < promises")?;
    let data = Path::new(&data);
    let promised = Promised::read()?;
    if !data.join("ledger.db").exists() {
        ensure!(promised.is_empty(), "there is no ledger");
        return Ok(());
    }
    let ledger = Ledger::open(&data.join("ledger.db"), nas_ledger::Options { ballast_bytes: 0 })?;
    let report = ledger.verify(promised.head)?;
    if let Some((seq, fault)) = report.fault {
        bail!("record {seq}: {fault}");
    }
    let pointer = ledger.read(|reader| reader.generation())?;
    let pointer = pointer.map(|row| Pointer { number: row.number, commit: row.commit_oid });
    let pool = data.join("pool");
    if !pool.exists() {
        ensure!(promised.is_empty() && pointer.is_none(), "there is no pool");
        return Ok(());
    }
    let options = Options { reserve: Reserve { percent: 0, bytes_min: 0 }, ..Options::default() };
    let store = Store::open(&pool, pointer, options).context("opening the store")?;
    check_main(&store)?;
    if let Some((commit, files)) = &promised.merge {
        let now = store.main().pointer().commit;
        ensure!(store.history().is_ancestor(*commit, now)?, "the merge {commit} is lost: main is {now}");
        // A later merge may have changed them; that main is what its commit says is looked at above.
        for (path, content) in files.iter().filter(|_| now == *commit) {
            ensure!(read(store.main().live(), path)?.as_deref() == Some(content.as_bytes()), "main lost {path}");
        }
    }
    for ((name, path), content) in &promised.files {
        let branch = store.branch(name).with_context(|| format!("branch {name} is lost"))?;
        let found = read(branch.live(), path)?;
        ensure!(
            found.as_deref() == content.as_deref().map(str::as_bytes),
            "{path} on {name} holds {:?}, promised was {content:?}",
            found.as_deref().map(String::from_utf8_lossy),
        );
    }
    // Every commit that a ref names is whole.
    for branch in store.branches() {
        store.history().diff(None, branch.tip()).with_context(|| format!("the tip of {}", branch.name()))?;
    }
    Ok(())
}

/// The generation holds exactly the files of its commit, and the objects say so.
fn check_main(store: &Store) -> Result<()> {
    let main = store.main();
    for change in store.history().diff(None, main.pointer().commit)? {
        let Some(entry) = change.new else { continue };
        if entry.kind != EntryKind::File {
            continue;
        }
        let bytes = read(main.live(), &change.path)?.with_context(|| format!("main lacks {}", change.path))?;
        let same =
            entry.oid.is_some_and(|oid| store.history().read_blob(oid, u64::MAX).is_ok_and(|blob| blob == bytes));
        ensure!(same, "{} in main is not what its commit says", change.path);
    }
    Ok(())
}

fn read(live: &LiveDir, path: &TreePath) -> Result<Option<Vec<u8>>> {
    let at = match live.locate_path(path) {
        Ok(at) => at,
        Err(FsError::NotFound | FsError::NotDir) => return Ok(None),
        Err(error) => bail!("{path}: {error:?}"),
    };
    let mut bytes = vec![0; usize::try_from(at.attr.size)?];
    let got = live.read(&at, 0, &mut bytes).map_err(|error| anyhow::anyhow!("{path}: {error:?}"))?;
    bytes.truncate(got.count as usize);
    Ok(Some(bytes))
}
