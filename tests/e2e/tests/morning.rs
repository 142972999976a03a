//! The next morning: what becomes of a proposal while time, other merges, the branch and the lease go on (SPEC GATE, DESIGN §4).

use std::collections::BTreeMap;

use nas_e2e::{Leased, PATIENCE, TestBox, passphrase, path, refused};
use nas_nfsclient::nfs3::ftype3;
use nas_nfsclient::{Client, Status};
use nas_testkit::{Scratch, wait_until};
use nas_types::lease::{Action, View};
use nas_types::secret::Secret;
use nas_types::verb::{
    BoxStatus, BoxTrustClock, BranchDiff, GateApprove, GateCard, GateDecided, GateDeny, GateList, GateShow,
    LeaseCreate, LeaseRevoke, LeaseShow, Proposed, RecordInfo, RecordList, RecordVerify,
};

const TEN_LINES: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n";

/// A box with `/shared/launch` in main, and somebody who may read it.
struct Morning {
    nas: TestBox,
    reader: Leased,
}

impl Morning {
    fn start(more: &[&str]) -> anyhow::Result<Self> {
        let nas = TestBox::start_with(more)?;
        let source = Scratch::new("source");
        source.write("ten.txt", TEN_LINES);
        source.write("other.txt", "other\n");
        source.write("drop.txt", "drop\n");
        nas.import(source.path(), "/shared/launch").map_err(refused)?;
        let reader = nas.lease(&["/shared/**"], &[Action::List, Action::Read], None).map_err(refused)?;
        Ok(Self { nas, reader })
    }

    /// Main as a client sees it: every file of `/shared/launch` with its content.
    fn main(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let mut main = self.nas.mount_view(&self.reader, "/shared/launch", View::Main)?;
        let mut files = BTreeMap::new();
        for found in main.walk("")?.into_iter().filter(|found| matches!(found.attr.type_, ftype3::NF3REG)) {
            let content = main.read_all(&found.handle)?;
            files.insert(String::from_utf8(found.path)?, String::from_utf8(content)?);
        }
        Ok(files)
    }

    /// The commit that main is at.
    fn commit(&self) -> anyhow::Result<String> {
        let status = self.nas.as_owner(&BoxStatus {}).map_err(refused)?;
        Ok(status.details.ok_or_else(|| anyhow::anyhow!("the owner sees no details"))?.commit)
    }

    /// A run that writes `files`, and what it proposes.
    fn run(&self, files: &[(&str, &str)]) -> anyhow::Result<(Leased, Client, Proposed)> {
        let run = self.nas.full_lease("/shared/launch").map_err(refused)?;
        let mut work = self.nas.mount(&run, "/shared/launch")?;
        for (name, content) in files {
            work.write_file(name, content.as_bytes())?;
        }
        let proposed = self.nas.propose(&run).map_err(refused)?;
        Ok((run, work, proposed))
    }

    fn approve(&self, proposed: &Proposed) -> anyhow::Result<GateDecided> {
        let card = self.nas.card(proposed).map_err(refused)?;
        self.nas.approve(&card).map_err(refused)
    }

    fn card(&self, gate: nas_types::id::GateId) -> anyhow::Result<GateCard> {
        self.nas.as_owner(&GateShow { gate }).map_err(refused)
    }

    fn verifies(&self) -> anyhow::Result<()> {
        let verified = self.nas.as_owner(&RecordVerify::default()).map_err(refused)?;
        anyhow::ensure!(verified.ok, "the chain does not verify: {:?}", verified.because);
        Ok(())
    }
}

/// `TEN_LINES` with one line changed.
fn ten_with(line: usize, text: &str) -> String {
    let lines = TEN_LINES.lines().enumerate();
    lines.map(|(at, old)| format!("{}\n", if at + 1 == line { text } else { old })).collect()
}

/// Goal: the evening's proposal is merged the next morning: its lease is over, nasd was restarted, and other merges have
/// moved main without touching these changes.
#[test]
fn merged_the_next_morning() -> anyhow::Result<()> {
    let mut morning = Morning::start(&[])?;
    let all = [Action::List, Action::Read, Action::Write, Action::Propose];
    let evening = morning.nas.lease(&["/shared/launch/**"], &all, Some(3)).map_err(refused)?;
    let mut work = morning.nas.mount(&evening, "/shared/launch")?;
    work.write_file("ten.txt", ten_with(1, "one").as_bytes())?;
    work.remove_path("drop.txt")?;
    let proposed = morning.nas.propose(&evening).map_err(refused)?;

    let over = wait_until(PATIENCE, || {
        let shown = morning.nas.call(Some(&evening.token), &LeaseShow::default());
        shown.is_ok_and(|lease| lease.state == "expired")
    });
    assert!(over, "the lease does not end");
    morning.nas.restart()?;
    let shown = morning.nas.call(Some(&evening.token), &LeaseShow::default()).map_err(refused)?;
    assert_eq!(shown.state, "expired");

    // Meanwhile: another agent's merge, and an import.
    let (_other, _work, other) = morning.run(&[("other.txt", "changed by another\n"), ("new.txt", "new\n")])?;
    assert_eq!(morning.approve(&other)?.state, "approved");
    let more = Scratch::new("more");
    more.write("imported.txt", "imported\n");
    morning.nas.import(more.path(), "/shared/launch/import").map_err(refused)?;

    let before = morning.main()?;
    let decided = morning.approve(&proposed)?;
    assert_eq!(decided.state, "approved", "{:?}", decided.because);
    let mut expected = before;
    expected.insert("ten.txt".to_owned(), ten_with(1, "one"));
    assert!(expected.remove("drop.txt").is_some());
    assert_eq!(morning.main()?, expected);
    morning.verifies()
}

/// Goal: the branch goes on after propose; what was pinned is merged, nothing more.
#[test]
fn only_what_was_pinned() -> anyhow::Result<()> {
    let morning = Morning::start(&[])?;
    let (run, mut work, proposed) = morning.run(&[("ten.txt", &ten_with(1, "pinned"))])?;
    work.write_file("ten.txt", ten_with(1, "too late").as_bytes())?;
    work.write_file("late.txt", b"late\n")?;
    work.remove_path("other.txt")?;
    let late = morning.nas.call(Some(&run.token), &nas_types::verb::BranchCommit::default()).map_err(refused)?;
    assert!(late.made || late.commit != proposed.commit);

    let card = morning.nas.card(&proposed).map_err(refused)?;
    assert!(card.diff.contains("+pinned") && !card.diff.contains("late"), "{}", card.diff);
    let mut expected = morning.main()?;
    assert_eq!(morning.nas.approve(&card).map_err(refused)?.state, "approved");
    expected.insert("ten.txt".to_owned(), ten_with(1, "pinned"));
    assert_eq!(morning.main()?, expected);

    // The branch still has the rest, and proposes it as it is: relative to the new main.
    let rest = morning.nas.propose(&run).map_err(refused)?;
    assert_eq!(rest.files_changed, 3);
    assert_eq!(morning.approve(&rest)?.state, "approved");
    expected.insert("ten.txt".to_owned(), ten_with(1, "too late"));
    expected.insert("late.txt".to_owned(), "late\n".to_owned());
    expected.remove("other.txt");
    assert_eq!(morning.main()?, expected);
    morning.verifies()
}

/// Goal: the same file changed on main, so that the result would differ from what the card showed: void, main
/// unchanged, a fresh card in its place, and that one can be approved.
#[test]
fn another_result_needs_another_answer() -> anyhow::Result<()> {
    let morning = Morning::start(&[])?;
    let (_a, _work, slow) = morning.run(&[("ten.txt", &ten_with(1, "slow"))])?;
    let (_b, _work, fast) = morning.run(&[("ten.txt", &ten_with(10, "fast"))])?;
    let shown = morning.nas.card(&slow).map_err(refused)?;
    assert_eq!(morning.approve(&fast)?.state, "approved");

    let before = (morning.commit()?, morning.main()?);
    let void = morning.nas.approve(&shown).map_err(refused)?;
    assert_eq!((void.state.as_str(), void.commit), ("void", None));
    assert_eq!((morning.commit()?, morning.main()?), before);

    let fresh = void.successor.ok_or_else(|| anyhow::anyhow!("no fresh card: {:?}", void.because))?;
    assert_eq!(morning.card(shown.gate)?.successor, Some(fresh));
    let card = morning.card(fresh)?;
    assert_eq!(card.state, "pending");
    assert_ne!(card.action.digest, shown.action.digest);
    assert!(card.diff.contains("+slow") && !card.diff.contains("+fast"), "{}", card.diff);
    // Neither the old card nor its digest is worth anything any more.
    assert_eq!(morning.nas.approve(&shown).unwrap_err().code, "state");
    let stale = GateApprove { gate: fresh, digest: shown.action.digest, passphrase: passphrase(), reason: None };
    assert_eq!(morning.nas.as_owner(&stale).unwrap_err().code, "state");
    assert_eq!(morning.commit()?, before.0);

    assert_eq!(morning.nas.approve(&card).map_err(refused)?.state, "approved");
    let both = ten_with(1, "slow").replace("10\n", "fast\n");
    assert_eq!(morning.main()?.get("ten.txt"), Some(&both));
    morning.verifies()
}

/// Goal: a true conflict is never settled by the box (SPEC BRANCH-5): void, the conflict named, main unchanged. The same
/// when main already has the very change: there is nothing left to ask.
#[test]
fn a_conflict_is_told() -> anyhow::Result<()> {
    let morning = Morning::start(&[])?;
    let (_a, _work, mine) = morning.run(&[("ten.txt", &ten_with(5, "mine"))])?;
    let (_b, _work, theirs) = morning.run(&[("ten.txt", &ten_with(5, "theirs"))])?;
    let (_c, _work, same) = morning.run(&[("ten.txt", &ten_with(5, "theirs"))])?;
    assert_eq!(morning.approve(&theirs)?.state, "approved");

    let before = (morning.commit()?, morning.main()?);
    let void = morning.approve(&mine)?;
    assert_eq!((void.state.as_str(), void.commit, void.successor), ("void", None, None));
    assert!(void.conflicts.iter().any(|conflict| conflict.path == path("/shared/launch/ten.txt")), "{void:?}");
    let void = morning.approve(&same)?;
    assert_eq!((void.state.as_str(), void.commit, void.successor), ("void", None, None));
    assert!(void.because.is_some_and(|because| because.contains("nothing to merge")));
    assert_eq!((morning.commit()?, morning.main()?), before);
    morning.verifies()
}

/// Goal: revoking the lease, or the one it descends from, voids what it proposed (SPEC LEASE-3).
#[test]
fn revoked_is_void() -> anyhow::Result<()> {
    let morning = Morning::start(&[])?;
    let (run, _work, own) = morning.run(&[("ten.txt", &ten_with(1, "own"))])?;
    let parent = morning.nas.full_lease("/shared/launch").map_err(refused)?;
    let narrow = LeaseCreate {
        role: None,
        paths: vec!["/shared/launch/other.txt".to_owned()],
        actions: vec![Action::Read, Action::Write, Action::Propose],
        ttl_seconds: None,
        purpose: None,
        quota_bytes: None,
        tree: None,
    };
    let created = morning.nas.call(Some(&parent.token), &narrow).map_err(refused)?;
    let child = Leased { info: created.lease, token: created.token };
    morning.nas.mount(&child, "/shared/launch")?.write_file("other.txt", b"child\n")?;
    let childs = morning.nas.propose(&child).map_err(refused)?;

    let before = morning.commit()?;
    let cards = [morning.nas.card(&own).map_err(refused)?, morning.nas.card(&childs).map_err(refused)?];
    for lease in [run.info.lease, parent.info.lease] {
        morning.nas.as_owner(&LeaseRevoke { lease, why: Some("a test".to_owned()) }).map_err(refused)?;
    }
    for card in &cards {
        assert_eq!(morning.card(card.gate)?.state, "void");
        let error = morning.nas.approve(card).unwrap_err();
        assert_eq!(error.code, "state", "{}", error.message);
    }
    assert_eq!(morning.commit()?, before);
    morning.verifies()
}

/// Goal: an answer that comes too late is no (SPEC GATE-3).
#[test]
fn no_answer_is_no() -> anyhow::Result<()> {
    let morning = Morning::start(&["--gate-ttl-seconds", "2"])?;
    // Nothing ends by age while the clock is in doubt; here nobody but the owner can say that it is right.
    morning.nas.as_owner(&BoxTrustClock { passphrase: passphrase() }).map_err(refused)?;
    let (run, _work, proposed) = morning.run(&[("ten.txt", &ten_with(1, "late"))])?;
    let card = morning.nas.card(&proposed).map_err(refused)?;
    let late = wait_until(PATIENCE, || now_ms() > proposed.expires_at.0);
    assert!(late);

    let before = morning.commit()?;
    let decided = morning.nas.approve(&card).map_err(refused)?;
    assert_eq!((decided.state.as_str(), decided.commit), ("expired", None));
    assert_eq!(morning.nas.approve(&card).unwrap_err().code, "state");
    assert_eq!(morning.commit()?, before);
    // The work is still there, and can be asked for again.
    let again = morning.nas.propose(&run).map_err(refused)?;
    assert_ne!(again.gate, proposed.gate);
    morning.verifies()
}

/// Goal: an approval is bound to what the card showed, and counts once (SPEC GATE-2).
#[test]
fn bound_to_the_card_and_counted_once() -> anyhow::Result<()> {
    let morning = Morning::start(&[])?;
    let (_run, _work, proposed) = morning.run(&[("ten.txt", &ten_with(1, "once"))])?;
    let (_run, _work, unwanted) = morning.run(&[("other.txt", "unwanted\n")])?;
    let card = morning.nas.card(&proposed).map_err(refused)?;
    let deny = |gate| GateDeny { gate, passphrase: passphrase(), reason: Some("no".to_owned()) };

    let other_digest = morning.nas.card(&unwanted).map_err(refused)?.action.digest;
    let before = morning.commit()?;
    for (digest, code) in [(other_digest.as_str(), "state"), ("0", "invalid")] {
        let wrong = GateApprove { gate: card.gate, digest: digest.to_owned(), passphrase: passphrase(), reason: None };
        assert_eq!(morning.nas.as_owner(&wrong).unwrap_err().code, code);
        assert_eq!(morning.card(card.gate)?.state, "pending");
    }
    assert_eq!(morning.commit()?, before);

    let first = morning.nas.approve(&card).map_err(refused)?;
    assert_eq!((first.state.as_str(), first.already_there), ("approved", false));
    let merged = morning.commit()?;
    let second = morning.nas.approve(&card).map_err(refused)?;
    assert_eq!((second.state.as_str(), second.already_there, second.commit), ("approved", true, first.commit));
    assert_eq!(morning.nas.as_owner(&deny(card.gate)).unwrap_err().code, "state");

    assert_eq!(morning.nas.as_owner(&deny(unwanted.gate)).map_err(refused)?.state, "denied");
    assert!(morning.nas.as_owner(&deny(unwanted.gate)).map_err(refused)?.already_there);
    let late = morning.nas.card(&unwanted).map_err(refused)?;
    assert_eq!((late.state.as_str(), late.options.len()), ("denied", 0));
    assert_eq!(morning.nas.approve(&late).unwrap_err().code, "state");
    assert_eq!(morning.commit()?, merged);
    morning.verifies()
}

/// Goal: no decision without the secret that is on no disk, and guessing it is slow (DESIGN §4).
#[test]
fn no_decision_without_the_passphrase() -> anyhow::Result<()> {
    let morning = Morning::start(&[])?;
    let (_run, _work, proposed) = morning.run(&[("ten.txt", &ten_with(1, "guessed"))])?;
    let card = morning.nas.card(&proposed).map_err(refused)?;
    let before = morning.commit()?;
    // The token alone does not decide: there is no form of the verb without the passphrase.
    let bare = serde_json::json!({ "gate": card.gate, "digest": card.action.digest });
    let error = morning.nas.call_json("gate/approve", Some(morning.nas.owner()), &bare).unwrap_err();
    assert_eq!(error.code, "invalid", "{}", error.message);
    let error = morning.nas.call_json("gate/deny", Some(morning.nas.owner()), &bare).unwrap_err();
    assert_eq!(error.code, "invalid", "{}", error.message);

    let guess = |text: &str| GateApprove {
        gate: card.gate,
        digest: card.action.digest.clone(),
        passphrase: Secret::new(text.to_owned()),
        reason: None,
    };
    let slowed_down = (0..20).any(|n| {
        let code = morning.nas.as_owner(&guess(&format!("wrong passphrase {n}"))).unwrap_err().code;
        assert!(code == "wrong_passphrase" || code == "busy", "{code}");
        code == "busy"
    });
    assert!(slowed_down, "20 guesses in a row");
    assert_eq!(morning.card(card.gate)?.state, "pending");
    assert_eq!(morning.commit()?, before);

    // The owner is never locked out for good.
    let decided = wait_until(PATIENCE, || morning.nas.approve(&card).is_ok_and(|decided| decided.state == "approved"));
    assert!(decided, "the right passphrase is not accepted after the wait");
    let wrong = |record: &RecordInfo| record.rule.as_deref() == Some("wrong-passphrase");
    let refusals = RecordList { kind: Some("refusal".to_owned()), ..RecordList::default() };
    assert!(wait_until(PATIENCE, || morning.nas.as_owner(&refusals).is_ok_and(|r| r.records.iter().any(wrong))));
    morning.verifies()
}

/// Goal: the bearer of a lease decides nothing, not even about its own proposal, and other runs' gates do not exist for it.
#[test]
fn agents_decide_nothing() -> anyhow::Result<()> {
    let morning = Morning::start(&[])?;
    let (mine, _work, my_gate) = morning.run(&[("ten.txt", &ten_with(1, "mine"))])?;
    let (_theirs, _work, their_gate) = morning.run(&[("other.txt", "theirs\n")])?;
    let nas = &morning.nas;
    let before = morning.commit()?;

    let own = nas.call(Some(&mine.token), &GateShow { gate: my_gate.gate }).map_err(refused)?;
    assert_eq!(own.state, "pending");
    let listed = nas.call(Some(&mine.token), &GateList { all: true, ..GateList::default() }).map_err(refused)?;
    assert_eq!(listed.gates.iter().map(|gate| gate.gate).collect::<Vec<_>>(), [my_gate.gate]);
    assert_eq!(nas.call(Some(&mine.token), &GateShow { gate: their_gate.gate }).unwrap_err().code, "not_found");
    for card in [own, nas.card(&their_gate).map_err(refused)?] {
        // With the owner's passphrase, should it ever leak: the token says who decides.
        let approve =
            GateApprove { gate: card.gate, digest: card.action.digest, passphrase: passphrase(), reason: None };
        let deny = GateDeny { gate: card.gate, passphrase: passphrase(), reason: None };
        assert_eq!(nas.call(Some(&mine.token), &approve).unwrap_err().code, "denied");
        assert_eq!(nas.call(Some(&mine.token), &deny).unwrap_err().code, "denied");
        assert_eq!(morning.card(card.gate)?.state, "pending");
    }
    assert_eq!(morning.commit()?, before);
    Ok(())
}

/// Goal: inside the mount a program finds out where its proposal and its lease stand (SPEC MOUNT-5), and those files
/// are never part of a diff.
#[test]
fn told_inside_the_mount() -> anyhow::Result<()> {
    let morning = Morning::start(&[])?;
    let (run, mut work, proposed) = morning.run(&[("ten.txt", &ten_with(1, "asked"))])?;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes);
    let pending = text(work.read_file(".nas/pending")?)?;
    assert!(pending.contains(&proposed.gate.to_string()) && pending.contains("waits"), "{pending}");
    let lease: serde_json::Value = serde_json::from_slice(&work.read_file(".nas/lease.json")?)?;
    assert_eq!(lease["lease"], run.info.lease.to_string());
    assert_eq!(lease["state"], "active");
    let budget: serde_json::Value = serde_json::from_slice(&work.read_file(".nas/budget.json")?)?;
    assert!(budget["remaining_seconds"].as_u64().is_some_and(|seconds| seconds > 0), "{budget}");
    for name in ["pending", "lease.json", "budget.json"] {
        let error = work.write_file(format!(".nas/{name}"), b"{}").unwrap_err();
        assert_eq!(error.status(), Some(Status::NFS3ERR_ACCES), "{name}");
        assert_eq!(work.remove_path(format!(".nas/{name}")).unwrap_err().status(), Some(Status::NFS3ERR_ACCES));
    }
    let diff = BranchDiff { text: true, ..BranchDiff::default() };
    let diff = morning.nas.call(Some(&run.token), &diff).map_err(refused)?;
    assert_eq!(
        diff.changes.iter().map(|change| change.path.to_string()).collect::<Vec<_>>(),
        ["/shared/launch/ten.txt"]
    );

    assert_eq!(morning.approve(&proposed)?.state, "approved");
    let pending = text(work.read_file(".nas/pending")?)?;
    assert!(pending.contains("approved") && !pending.contains("waits"), "{pending}");
    assert!(!morning.main()?.keys().any(|name| name.contains(".nas")));
    Ok(())
}

fn now_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
