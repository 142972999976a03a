//! The crash sweep: nasd is killed between any two effects of commit and merge, and started again (DESIGN §3, §4).
//!
//! Each round arms one failpoint in a fresh nasd while a client and the owner work. Whatever had been answered must
//! hold afterwards; main is the old or the new generation and nothing between; what was mounted goes on.

use std::collections::BTreeMap;
use std::path::Path;

use nas_e2e::{TestBox, refused};
use nas_nfsclient::{Client, Handle};
use nas_testkit::Scratch;
use nas_types::lease::View;
use nas_types::verb::{
    BranchRecycle, BranchShow, GateApprove, GateShow, Propose, Proposed, RecordHead, RecordList, RecordVerify,
};

/// Points that only the first start of a box passes.
const FIRST_START: [&str; 4] =
    ["history.open.config", "history.open.head", "store.first.durable", "store.first.synced"];

/// Points of the work on a branch and of recycling, with the passages that are tried.
const BRANCH: [(&str, &[u64]); 19] = [
    ("store.mark.written", &[1]),
    ("store.fork.made", &[1]),
    ("store.fork.forked", &[1]),
    ("store.fork.state", &[1]),
    ("store.fork.ref", &[1]),
    ("store.commit.frozen", &[1]),
    ("store.commit.written", &[1]),
    ("store.commit.durable", &[1]),
    ("store.commit.ref", &[1]),
    ("store.commit.clean", &[1]),
    ("store.recycle.state", &[1]),
    ("store.recycle.ref", &[1]),
    ("history.pack.written", &[1, 2]),
    ("history.pack.synced", &[1, 2]),
    ("history.pack.renamed", &[1, 2]),
    ("history.idx.renamed", &[1, 2]),
    ("history.pack.durable", &[1, 2]),
    ("history.ref.synced", &[1, 2]),
    ("history.ref.removed", &[1]),
];

/// Points of proposing and merging, with the passages that are tried.
const MERGE: [(&str, &[u64]); 20] = [
    ("history.ref.renamed", &[2, 4]),
    ("history.ref.durable", &[2, 4]),
    ("store.pin.durable", &[1]),
    ("store.pin.pinned", &[1]),
    ("store.pin.squashed", &[1]),
    ("store.stage.written", &[1]),
    ("store.stage.durable", &[1]),
    ("store.stage.forked", &[1]),
    ("store.stage.applied", &[1]),
    ("store.stage.synced", &[1]),
    ("store.publish.flipped", &[1]),
    ("store.publish.ref", &[1]),
    ("door.merge.intent", &[1]),
    ("door.merge.staged", &[1]),
    ("door.merge.pointer", &[1]),
    ("door.merge.published", &[1]),
    ("ledger.anchor.before", &[1, 2]),
    ("ledger.anchor.after", &[1, 2]),
    ("ledger.commit.before", &[1, 4, 6, 8, 9]),
    ("ledger.commit.after", &[1, 4, 6, 8, 9]),
];

/// Points of making an unprotected tree: `trees.rs` kills there.
const TREES: [&str; 1] = ["door.tree.made"];

/// Points of a standing branch that follows main: `standing.rs` kills there, and so does the sweep of the store.
const FOLLOWING: [&str; 2] = ["store.follow.applied", "store.follow.state"];

/// Points that nasd does not pass: joining and pruning packs. The crash sweep of `nas-history` kills there.
const ELSEWHERE: [&str; 3] = ["history.consolidate.written", "history.pack.removed", "history.prune.written"];

/// Goal: no failpoint of the sources is left out above, and none is listed that is gone.
#[test]
fn every_failpoint_is_listed() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    for top in ["appliance", "services"] {
        collect(&root.join(top), &mut found)?;
    }
    found.sort();
    found.dedup();
    let swept = BRANCH.iter().chain(&MERGE).map(|(name, _)| *name);
    let mut listed: Vec<_> =
        swept.chain(FIRST_START).chain(TREES).chain(FOLLOWING).chain(ELSEWHERE).map(str::to_owned).collect();
    listed.sort();
    assert_eq!(found, listed);
    Ok(())
}

/// Names in `failpoint::hit("…")` below `dir`, tests left out.
fn collect(dir: &Path, found: &mut Vec<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "tests") {
            collect(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path)?;
            let names = text.split("failpoint::hit(\"").skip(1);
            found.extend(names.filter_map(|rest| rest.split('"').next()).map(str::to_owned));
        }
    }
    Ok(())
}

/// Goal: killed at any point of the very first start, the next start makes the box as if nothing had been.
#[test]
fn first_start() -> anyhow::Result<()> {
    let scratch = Scratch::new("first");
    let mut nas = TestBox::in_folder(&scratch.join("data"), &[]);
    for failpoint in FIRST_START {
        assert!(nas.boot_with(&[("NAS_FAILPOINT", failpoint)]).is_err(), "{failpoint} was not reached");
        nas.wait_for_end()?;
    }
    nas.boot()?;
    nas.init_owner()?;
    let lease = nas.full_lease("/shared").map_err(refused)?;
    let mut work = nas.mount(&lease, "/shared")?;
    work.write_file("a", b"a")?;
    assert_eq!(work.read_file("a")?, b"a");
    assert!(nas.as_owner(&RecordVerify::default()).map_err(refused)?.ok);
    Ok(())
}

/// Goal: killed at any point of writing, committing, forking and recycling.
#[test]
fn branch_points() -> anyhow::Result<()> {
    sweep(&BRANCH)
}

/// Goal: killed at any point of proposing and merging.
#[test]
fn merge_points() -> anyhow::Result<()> {
    sweep(&MERGE)
}

fn sweep(points: &[(&str, &[u64])]) -> anyhow::Result<()> {
    let mut nas = TestBox::start()?;
    let source = Scratch::new("source");
    source.write("base.md", "base\n");
    nas.import(source.path(), "/shared/launch").map_err(refused)?;
    let mut main = BTreeMap::from([("base.md".to_owned(), b"base\n".to_vec())]);
    let rounds = points.iter().flat_map(|(name, passages)| passages.iter().map(move |nth| (name, nth)));
    for (number, (name, nth)) in rounds.enumerate() {
        let failpoint = format!("{name}:{nth}");
        println!("{failpoint}");
        let before = Round::prepare(&nas, number).map_err(|error| error.context(failpoint.clone()))?;
        nas.stop()?;
        let _ = nas.boot_with(&[("NAS_FAILPOINT", &failpoint)]);
        let acked = before.act(&nas);
        nas.wait_for_end().map_err(|error| error.context(format!("{failpoint} was not reached; {acked:?}")))?;
        nas.boot()?;
        before
            .check(&nas, &acked, &mut main)
            .map_err(|error| error.context(format!("after {failpoint}; {acked:?}; log:\n{}", tail(&nas.log()))))?;
    }
    Ok(())
}

fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

/// One round: a mounted client with a file in its hand.
struct Round {
    number: usize,
    lease: nas_e2e::Leased,
    client: Client,
    held: Handle,
}

/// What was answered before nasd died.
#[derive(Debug, Default)]
struct Acked {
    /// COMMIT of the file in the client's hand.
    held: bool,
    /// COMMIT of a file created in this round.
    fresh: bool,
    /// The lease of another run, and whether that run's branch was given up again.
    other: Option<(String, bool)>,
    head: Option<nas_types::verb::Head>,
    proposed: Option<nas_types::id::GateId>,
    merged: Option<nas_types::object::Oid>,
}

impl Round {
    fn prepare(nas: &TestBox, number: usize) -> anyhow::Result<Self> {
        let lease = nas.full_lease("/shared/launch").map_err(refused)?;
        let mut client = nas.mount(&lease, "/shared/launch")?;
        let held = client.write_file(format!("held-{number}"), b"first\n")?;
        Ok(Self { number, lease, client, held })
    }

    /// Works until something is not answered.
    fn act(&self, nas: &TestBox) -> Acked {
        let mut acked = Acked::default();
        let _ = self.steps(nas, &mut acked);
        acked
    }

    fn steps(&self, nas: &TestBox, acked: &mut Acked) -> anyhow::Result<()> {
        let mut client = self.client.reconnect()?;
        self.write_held(&mut client)?;
        acked.held = true;
        self.write_fresh(&mut client)?;
        acked.fresh = true;
        acked.head = Some(nas.as_owner(&RecordHead {}).map_err(refused)?);
        let other = nas.full_lease("/shared/launch").map_err(refused)?;
        let name = other.token.reveal().to_owned();
        acked.other = Some((name.clone(), false));
        nas.as_owner(&BranchRecycle { run: Some(other.info.run) }).map_err(refused)?;
        acked.other = Some((name, true));
        let proposed = self.propose(nas)?;
        acked.proposed = Some(proposed.gate);
        acked.head = Some(nas.as_owner(&RecordHead {}).map_err(refused)?);
        acked.merged = Some(approve(nas, proposed.gate)?);
        acked.head = Some(nas.as_owner(&RecordHead {}).map_err(refused)?);
        Ok(())
    }

    fn write_held(&self, client: &mut Client) -> anyhow::Result<()> {
        client.write(&self.held, 0, b"again\n", nas_nfsclient::nfs3::stable_how::UNSTABLE)?;
        client.commit(&self.held)?;
        Ok(())
    }

    fn write_fresh(&self, client: &mut Client) -> anyhow::Result<()> {
        client.write_file(format!("fresh-{}", self.number), b"fresh\n")?;
        Ok(())
    }

    fn propose(&self, nas: &TestBox) -> anyhow::Result<Proposed> {
        let propose = Propose { into: "main".to_owned(), why: Some(format!("round {}", self.number)) };
        nas.call(Some(&self.lease.token), &propose).map_err(refused)
    }

    fn check(&self, nas: &TestBox, acked: &Acked, main: &mut BTreeMap<String, Vec<u8>>) -> anyhow::Result<()> {
        let mut new = main.clone();
        new.insert(format!("held-{}", self.number), b"again\n".to_vec());
        new.insert(format!("fresh-{}", self.number), b"fresh\n".to_vec());
        // A view of main that is not there yet is asked for by another run: its branch is one more that works.
        let witness = nas.full_lease("/shared/launch").map_err(refused)?;
        let mut view = nas.mount_view(&witness, "/shared/launch", View::Main)?;
        let found = files(&mut view)?;
        let moved = found == new;
        anyhow::ensure!(moved || found == *main, "main is neither the old nor the new generation: {:?}", found.keys());
        anyhow::ensure!(moved || acked.merged.is_none(), "an acknowledged merge is gone");
        println!("main moved: {moved}; answered: {acked:?}");
        self.check_records(nas, acked, moved)?;
        self.check_mounted(nas, acked)?;
        Self::check_other(nas, acked)?;
        self.finish(nas, acked, moved)?;
        anyhow::ensure!(files(&mut view)? == new, "the work could not be finished");
        *main = new;
        nas.as_owner(&BranchRecycle { run: Some(witness.info.run) }).map_err(refused)?;
        Ok(())
    }

    /// The chain holds and contains what was told; each intent came to an end, the merge to the right one.
    fn check_records(&self, nas: &TestBox, acked: &Acked, moved: bool) -> anyhow::Result<()> {
        let verified = nas.as_owner(&RecordVerify { anchor: acked.head.clone() }).map_err(refused)?;
        anyhow::ensure!(verified.ok, "the chain does not hold: {:?}", verified.because);
        let list = RecordList { limit: Some(60), ..RecordList::default() };
        let records = nas.as_owner(&list).map_err(refused)?.records;
        let mut merges = Vec::new();
        for intent in records.iter().filter(|record| record.kind.ends_with(".intent")) {
            let ends: Vec<_> = records.iter().filter(|record| record.intent == Some(intent.seq)).collect();
            anyhow::ensure!(ends.len() == 1, "intent {} has {} outcomes", intent.seq, ends.len());
            if intent.kind == "merge.intent" && intent.run == Some(self.lease.info.run) {
                merges.push(ends[0].kind.as_str());
            }
        }
        let expected: &[&str] = match (moved, merges.len()) {
            (true, _) => &["merge.outcome"],
            (false, 0) => &[],
            (false, _) => &["merge.aborted.outcome"],
        };
        anyhow::ensure!(merges == expected, "the merge ended as {merges:?}, main moved: {moved}");
        Ok(())
    }

    /// The handles of before are good, and hold what COMMIT promised.
    fn check_mounted(&self, nas: &TestBox, acked: &Acked) -> anyhow::Result<()> {
        let mut client = self.client.reconnect()?;
        let held = client.read_all(&self.held)?;
        let legal = held == b"again\n" || (!acked.held && held == b"first\n");
        anyhow::ensure!(legal, "the file in the client's hand holds {:?}", String::from_utf8_lossy(&held));
        if acked.fresh {
            let fresh = client.read_file(format!("fresh-{}", self.number))?;
            anyhow::ensure!(fresh == b"fresh\n", "the new file holds {:?}", String::from_utf8_lossy(&fresh));
        }
        self.write_held(&mut client)?;
        self.write_fresh(&mut client)?;
        anyhow::ensure!(client.read_all(&self.held)? == b"again\n", "a write after the restart is not there");
        nas.call(Some(&self.lease.token), &BranchShow::default()).map_err(refused)?;
        Ok(())
    }

    /// Another run's lease that was answered is good, unless its branch was given up.
    fn check_other(nas: &TestBox, acked: &Acked) -> anyhow::Result<()> {
        let Some((token, recycled)) = &acked.other else { return Ok(()) };
        let token = nas_types::secret::Secret::new(token.clone());
        let shown = nas.call(Some(&token), &BranchShow::default());
        match shown {
            Ok(branch) => anyhow::ensure!(!recycled || branch.state == "recycled", "a recycled branch is back"),
            // Recycling ends the run's leases.
            Err(error) => anyhow::ensure!(error.code != "internal", "{}", error.message),
        }
        Ok(())
    }

    /// Whatever the state is, proposing and approving lead to the merge.
    fn finish(&self, nas: &TestBox, acked: &Acked, moved: bool) -> anyhow::Result<()> {
        if !moved {
            let proposed = self.propose(nas)?;
            approve(nas, proposed.gate)?;
        } else if let Some(gate) = acked.proposed {
            let card = nas.as_owner(&GateShow { gate }).map_err(refused)?;
            anyhow::ensure!(card.state == "approved", "main moved and the gate is {}", card.state);
        }
        let again = self.propose(nas);
        anyhow::ensure!(again.is_err(), "there is something left to propose after the merge");
        Ok(())
    }
}

fn approve(nas: &TestBox, gate: nas_types::id::GateId) -> anyhow::Result<nas_types::object::Oid> {
    let card = nas.as_owner(&GateShow { gate }).map_err(refused)?;
    let approve = GateApprove { gate, digest: card.action.digest, passphrase: nas_e2e::passphrase(), reason: None };
    let decided = nas.as_owner(&approve).map_err(refused)?;
    anyhow::ensure!(decided.state == "approved", "the gate is {}", decided.state);
    decided.commit.ok_or_else(|| anyhow::anyhow!("no commit"))
}

/// Every file of a mount with its content.
fn files(view: &mut Client) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut all = BTreeMap::new();
    for found in view.walk("")? {
        let name = String::from_utf8(found.path)?;
        all.insert(name, view.read_all(&found.handle)?);
    }
    Ok(all)
}
