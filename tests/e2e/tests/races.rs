//! A thousand races of an approval against what may happen at the same moment: a write on the branch, another merge, a
//! second approval, a revocation (SPEC GATE-2, BRANCH-1). Four workers race at once on one box, each in a directory of its
//! own, so that main moves under every approval all the time.
//!
//! After each race main must hold exactly what the card described, or what it held before. At the end every merge of
//! main is compared with the card that was approved for it, and the chain of records is verified.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use nas_e2e::{Leased, TestBox, refused};
use nas_nfsclient::nfs3::ftype3;
use nas_nfsclient::{Client, Status};
use nas_testkit::Scratch;
use nas_types::lease::{Action, View};
use nas_types::verb::{
    BoxStatus, BranchCommit, ErrorInfo, ExplainCommit, GateCard, GateDecided, GateShow, LeaseCreate, LeaseRevoke,
    RecordVerify, TreeLog,
};

/// Races of each of the four kinds.
const RACES_EACH: usize = 250;

const TEN_LINES: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n";

type Files = BTreeMap<String, String>;
type Race = fn(&TestBox) -> Result<()>;

/// Every file below the root of a mount, with its content.
fn read_all(client: &mut Client) -> Result<Files> {
    let mut files = Files::new();
    for found in client.walk("")?.into_iter().filter(|found| matches!(found.attr.type_, ftype3::NF3REG)) {
        let content = client.read_all(&found.handle)?;
        files.insert(String::from_utf8(found.path)?, String::from_utf8(content)?);
    }
    Ok(files)
}

/// One worker's run with its directory.
struct Worker<'a> {
    nas: &'a TestBox,
    dir: &'static str,
    lease: Leased,
    work: Client,
    main: Client,
    /// What main must hold below the directory.
    expected: Files,
}

impl<'a> Worker<'a> {
    fn new(nas: &'a TestBox, dir: &'static str) -> Result<Self> {
        let lease = nas.full_lease(dir).map_err(refused)?;
        let work = nas.mount(&lease, dir)?;
        let mut main = nas.mount_view(&lease, dir, View::Main)?;
        let expected = read_all(&mut main)?;
        Ok(Self { nas, dir, lease, work, main, expected })
    }

    /// Writes a file, proposes, and returns the card.
    fn ask(&mut self, by: Option<&Leased>, name: &str, content: &str) -> Result<GateCard> {
        self.work.write_file(name, content.as_bytes())?;
        let proposed = self.nas.propose(by.unwrap_or(&self.lease)).map_err(refused)?;
        self.nas.card(&proposed).map_err(refused)
    }

    /// The same, with what main will hold once it is approved: all of the branch as it is now.
    fn propose(&mut self, by: Option<&Leased>, name: &str, content: &str) -> Result<(GateCard, Files)> {
        let card = self.ask(by, name, content)?;
        Ok((card, read_all(&mut self.work)?))
    }

    /// Main must hold what is expected of some files.
    fn check_files(&mut self, race: usize, names: &[&str]) -> Result<()> {
        for name in names {
            let found = match self.main.read_file(name) {
                Ok(found) => Some(String::from_utf8(found)?),
                Err(error) if error.status() == Some(Status::NFS3ERR_NOENT) => None,
                Err(error) => return Err(error.into()),
            };
            let expected = self.expected.get(*name);
            ensure!(found.as_ref() == expected, "race {race}: main has {found:?} in {name}, not {expected:?}");
        }
        Ok(())
    }

    /// Main must hold what is expected, and nothing else.
    fn check(&mut self, race: usize) -> Result<()> {
        let found = read_all(&mut self.main)?;
        ensure!(found == self.expected, "race {race} in {}: main has {found:#?}, not {:#?}", self.dir, self.expected);
        Ok(())
    }
}

/// Runs both at the same moment.
fn both<A: Send, B: Send>(one: impl FnOnce() -> A + Send, other: impl FnOnce() -> B + Send) -> Result<(A, B)> {
    let start = Barrier::new(2);
    thread::scope(|scope| {
        let one = scope.spawn(|| {
            start.wait();
            one()
        });
        start.wait();
        let other = other();
        Ok((one.join().map_err(|_| anyhow::anyhow!("a racer panicked"))?, other))
    })
}

/// Against writes on the branch, which go on until the approval is through, and commits of it.
fn against_writes(nas: &TestBox) -> Result<()> {
    let mut worker = Worker::new(nas, "/shared/writes")?;
    for race in 0..RACES_EACH {
        let (card, pinned) = worker.propose(None, "file", &format!("pinned {race}\n"))?;
        let (work, token, over) = (&mut worker.work, &worker.lease.token, AtomicBool::new(false));
        let (decided, written) = both(
            || {
                let decided = nas.approve(&card);
                over.store(true, Ordering::Release);
                decided
            },
            || -> Result<()> {
                let mut round = 0;
                while round == 0 || !over.load(Ordering::Acquire) {
                    round += 1;
                    work.write_file("file", format!("late {race} {round}\n").as_bytes())?;
                    work.write_file(format!("late-{}", round % 4), b"late\n")?;
                    if round == 1 && race % 2 == 0 {
                        nas.call(Some(token), &BranchCommit::default()).map_err(refused)?;
                    }
                }
                Ok(())
            },
        )?;
        written?;
        let decided = decided.map_err(refused)?;
        ensure!(decided.state == "approved", "race {race}: {decided:?}");
        worker.expected = pinned;
        worker.check(race)?;
    }
    Ok(())
}

/// The ten lines with the first or the last one changed.
fn changed(first: Option<&str>, last: Option<&str>) -> String {
    format!("{}\n2\n3\n4\n5\n6\n7\n8\n9\n{}\n", first.unwrap_or("1"), last.unwrap_or("10"))
}

/// Against the approval of another run's changes: of other files, of other lines of the same file (the result would
/// differ from the card), of the same line (a conflict).
fn against_merges(nas: &TestBox) -> Result<()> {
    let mut mine = Worker::new(nas, "/shared/merges")?;
    let mut theirs = Worker::new(nas, "/shared/merges")?;
    let mut won = [0, 0];
    for race in 0..RACES_EACH {
        let file = format!("file-{race:03}");
        let other = format!("other-{race:03}");
        let (my_line, their_line) = (format!("mine {race}"), format!("theirs {race}"));
        let my_text = changed(Some(&my_line), None);
        let (their_file, their_text) = match race % 3 {
            0 => (other.as_str(), their_line.clone()),
            1 => (file.as_str(), changed(None, Some(&their_line))),
            _ => (file.as_str(), changed(Some(&their_line), None)),
        };
        let my_card = mine.ask(None, &file, &my_text)?;
        let their_card = theirs.ask(None, their_file, &their_text)?;
        let (my_end, their_end) = both(|| nas.approve(&my_card), || nas.approve(&their_card))?;
        let (my_end, their_end) = (my_end.map_err(refused)?, their_end.map_err(refused)?);

        let approved = |end: &GateDecided| end.state == "approved";
        match (race % 3, approved(&my_end), approved(&their_end)) {
            (0, true, true) => {
                mine.expected.insert(file.clone(), my_text);
                mine.expected.insert(other.clone(), their_text);
            }
            (1 | 2, true, false) => {
                won[0] += 1;
                mine.expected.insert(file.clone(), my_text);
            }
            (1 | 2, false, true) => {
                won[1] += 1;
                mine.expected.insert(file.clone(), their_text);
            }
            _ => anyhow::bail!("race {race}: {my_end:?} and {their_end:?}"),
        }
        mine.check_files(race, &[&file, &other])?;
        for end in [&my_end, &their_end].into_iter().filter(|end| !approved(end)) {
            ensure!(end.state == "void" && end.commit.is_none(), "race {race}: {end:?}");
            // Where the result only differs there is a fresh card; a conflict leaves nothing to ask.
            ensure!(end.successor.is_some() == (race % 3 == 1), "race {race}: {end:?}");
            ensure!(end.conflicts.is_empty() == (race % 3 == 1), "race {race}: {end:?}");
            if let Some(fresh) = end.successor {
                let card = nas.as_owner(&GateShow { gate: fresh }).map_err(refused)?;
                let end = nas.approve(&card).map_err(refused)?;
                ensure!(approved(&end), "race {race}: the fresh card: {end:?}");
                mine.expected.insert(file.clone(), changed(Some(&my_line), Some(&their_line)));
                mine.check_files(race, &[&file, &other])?;
            }
        }
        // Whoever lost takes over what main has, as an agent would.
        let settled = mine.expected[&file].clone();
        for worker in [&mut mine, &mut theirs] {
            worker.work.write_file(&file, settled.as_bytes())?;
        }
    }
    mine.check(RACES_EACH)?;
    println!("another merge came second {} times and first {} times", won[0], won[1]);
    Ok(())
}

/// Against a second approval of the same card.
fn against_a_second_approval(nas: &TestBox) -> Result<()> {
    let mut worker = Worker::new(nas, "/shared/twice")?;
    for race in 0..RACES_EACH {
        let (card, pinned) = worker.propose(None, "file", &format!("once {race}\n"))?;
        let (one, other) = both(|| nas.approve(&card), || nas.approve(&card))?;
        let (one, other) = (one.map_err(refused)?, other.map_err(refused)?);
        ensure!(one.state == "approved" && other.state == "approved", "race {race}: {one:?} {other:?}");
        ensure!(one.already_there != other.already_there, "race {race}: merged twice or never: {one:?} {other:?}");
        ensure!(one.commit.is_some() && one.commit == other.commit, "race {race}: {one:?} {other:?}");
        worker.expected = pinned;
        worker.check(race)?;
    }
    Ok(())
}

/// Against a revocation of the lease that proposed. How long it waits follows the outcomes, so that most races happen
/// where the two meet.
fn against_revocation(nas: &TestBox) -> Result<()> {
    let mut worker = Worker::new(nas, "/shared/revoked")?;
    let (mut wait, mut merged, mut void) = (64_usize, 0, 0);
    for race in 0..RACES_EACH {
        let narrow = LeaseCreate {
            role: None,
            paths: worker.lease.info.paths.clone(),
            actions: Action::ALL.to_vec(),
            ttl_seconds: None,
            purpose: None,
            quota_bytes: None,
            tree: None,
        };
        let created = nas.call(Some(&worker.lease.token), &narrow).map_err(refused)?;
        let child = Leased { info: created.lease, token: created.token };
        let (card, pinned) = worker.propose(Some(&child), "file", &format!("revoked {race}\n"))?;
        let (decided, revoked) = both(
            || nas.approve(&card),
            || {
                for _ in 0..wait {
                    nas.as_owner(&BoxStatus {})?;
                }
                nas.as_owner(&LeaseRevoke { lease: child.info.lease, why: None })
            },
        )?;
        revoked.map_err(refused)?;
        // An approval that came after the revocation is told that the gate was decided: the revocation voided it.
        let state = nas.as_owner(&GateShow { gate: card.gate }).map_err(refused)?.state;
        let was_void = |error: &ErrorInfo| error.code == "state" && state == "void";
        match decided {
            Ok(decided) if decided.state == "approved" => {
                worker.expected = pinned;
                (merged, wait) = (merged + 1, wait - wait.div_ceil(8));
            }
            Ok(decided) if decided.state == "void" && decided.commit.is_none() => {
                (void, wait) = (void + 1, wait + wait.div_ceil(8).max(1))
            }
            Err(error) if was_void(&error) => (void, wait) = (void + 1, wait + wait.div_ceil(8).max(1)),
            other => anyhow::bail!("race {race}: {other:?}"),
        }
        worker.check(race)?;
        // The mount is the parent's: it goes on.
        ensure!(worker.work.getattr(&worker.work.root()).is_ok(), "race {race}: the parent's mount ended");
    }
    println!("revoked in time {void} times, too late {merged} times");
    ensure!(void > 0 && merged > 0, "only one of the two outcomes ever happened: nothing was raced");
    Ok(())
}

/// Every merge of main against the card that was approved for it.
fn audit(nas: &TestBox) -> Result<usize> {
    let (mut cursor, mut gates) = (None, BTreeSet::new());
    loop {
        let log = TreeLog { view: View::Main, cursor, limit: Some(1000) };
        let log = nas.as_owner(&log).map_err(refused)?;
        for commit in &log.commits {
            let asked = ExplainCommit { commit: commit.commit.to_string() };
            // The commits that were merged are in the log too, and the beginning of all.
            if commit.parents.len() < 2 {
                continue;
            }
            let explained = nas.as_owner(&asked).map_err(refused)?;
            let Some(gate) = explained.gate else {
                ensure!(commit.summary.starts_with("Import"), "{commit:?} was merged without a gate");
                continue;
            };
            ensure!(gates.insert(gate.gate), "{} was merged twice", gate.gate);
            let card = nas.as_owner(&GateShow { gate: gate.gate }).map_err(refused)?;
            ensure!(card.state == "approved" && card.action.digest == gate.digest, "{card:?}");
            ensure!(
                card.changes == explained.changes,
                "{}: {:#?} is not {:#?}",
                gate.gate,
                explained.changes,
                card.changes
            );
        }
        // Main is the line of first parents: a page that goes on from a merged commit would leave it.
        let last = log.commits.iter().rev().find(|commit| commit.parents.len() > 1);
        cursor = last.and_then(|commit| commit.parents.first()).map(ToString::to_string);
        if cursor.is_none() {
            return Ok(gates.len());
        }
    }
}

/// Goal: in 1,000 races never a byte is merged that was not in the digest, at most one merge a gate, and the chain
/// verifies.
#[test]
fn a_thousand_races() -> Result<()> {
    let nas = TestBox::start()?;
    let source = Scratch::new("source");
    for dir in ["writes", "twice", "revoked"] {
        source.write(format!("{dir}/file"), "before\n");
    }
    for race in 0..RACES_EACH {
        source.write(format!("merges/file-{race:03}"), TEN_LINES);
    }
    nas.import(source.path(), "/shared").map_err(refused)?;

    let kinds: [(&str, Race); 4] = [
        ("writes", against_writes),
        ("merges", against_merges),
        ("a second approval", against_a_second_approval),
        ("revocation", against_revocation),
    ];
    thread::scope(|scope| {
        let racing = kinds.map(|(name, race)| {
            (
                name,
                scope.spawn({
                    let nas = &nas;
                    move || race(nas)
                }),
            )
        });
        for (name, racing) in racing {
            let raced = racing.join().map_err(|_| anyhow::anyhow!("a worker panicked"))?;
            raced.with_context(|| format!("against {name}"))?;
        }
        anyhow::Ok(())
    })?;

    let merges = audit(&nas)?;
    ensure!(merges > 3 * RACES_EACH, "{merges} merges are too few: the races did not happen");
    let verified = nas.as_owner(&RecordVerify::default()).map_err(refused)?;
    ensure!(verified.ok, "the chain does not verify: {:?}", verified.because);
    Ok(())
}
