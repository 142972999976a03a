//! L1.7: a merge into protected shows a NAS-computed diff; approval is bound to a digest: change the diff and it is void
//! (GATE-1, GATE-2, BRANCH-5).

use serde_json::{Value, json};

use crate::report::{Miss, Verdict, require};
use crate::subject::{Lease, Subject};

pub(crate) fn run(nas: &Subject) -> Verdict {
    let dir = nas.dir("l1_7");
    nas.import(&dir, &[("one.txt", "1 old\n"), ("two.txt", "2 old\n"), ("drop.txt", "drop\n")])?;
    true_diff(nas, &dir)?;
    bound_to_its_digest(nas, &dir)?;
    denied_is_final(nas, &dir)?;
    main_moved(nas, &dir)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn content(nas: &Subject, lease: &Lease, dir: &str, name: &str) -> Result<Vec<u8>, Miss> {
    Ok(nas.mount(lease, dir, "main")?.read_file(name)?)
}

/// The card shows every change, whatever the run says about it.
fn true_diff(nas: &Subject, dir: &str) -> Verdict {
    let lease = nas.run_in(dir)?;
    let mut work = nas.mount(&lease, dir, "branch")?;
    work.write_file("one.txt", b"1 new\n")?;
    work.write_file("two.txt", b"2 new\n")?;
    work.remove_path("drop.txt")?;
    let card = nas.card(&nas.propose(&lease)?)?;
    let diff = text(&card["diff"]);
    for line in ["-1 old", "+1 new", "-2 old", "+2 new", "-drop"] {
        require(diff.lines().any(|found| found == line), || {
            format!("the diff on the card holds '{line}'; it does not")
        })?;
    }
    let changed = card["changes"].as_array().map_or(0, Vec::len);
    let counted = card["action"]["files_changed"].as_u64();
    require(changed == 3 && counted == Some(3), || {
        format!("3 changes are on the card; {changed} and {counted:?} are")
    })?;
    let deleted = card["risk"]["deletions"] == json!([format!("{dir}/drop.txt")]);
    require(deleted, || format!("the card names what is deleted; it names {}", card["risk"]["deletions"]))?;
    require(card["default"] == "deny", || "the default of a gate is deny (GATE-3); it is not".to_owned())?;
    // The run itself approves nothing (GATE-4), with or without the digest.
    let body = json!({ "gate": card["gate"], "digest": card["action"]["digest"], "passphrase": "guessed" });
    let by_run = nas.call("gate/approve", Some(&lease.token), &body).is_ok();
    require(!by_run, || "a run does not approve its own gate; it did".to_owned())
}

/// Another digest approves nothing, the right one exactly what was shown, and only once.
fn bound_to_its_digest(nas: &Subject, dir: &str) -> Verdict {
    let lease = nas.run_in(dir)?;
    let mut work = nas.mount(&lease, dir, "branch")?;
    work.write_file("one.txt", b"1 shown\n")?;
    let first = nas.propose(&lease)?;
    let stale = nas.card(&first)?;
    let digest = text(&stale["action"]["digest"]).to_owned();
    let other: String = digest.chars().map(|digit| if digit == '0' { '1' } else { '0' }).collect();
    let fooled = merged(&nas.approve(&first, &other));
    require(!fooled, || "an approval with another digest is refused; it was accepted".to_owned())?;

    // The branch goes on and asks again: the old digest does not approve the new diff.
    work.write_file("one.txt", b"1 changed later\n")?;
    let second = nas.propose(&lease)?;
    let fooled = merged(&nas.approve(&second, &digest));
    require(second == first || !fooled, || "an approval of an earlier diff is void; it was accepted".to_owned())?;
    let now = content(nas, &lease, dir, "one.txt")?;
    require(now == b"1 old\n", || "nothing was approved and main is as it was; it changed".to_owned())?;

    let card = nas.card(&second)?;
    let decided = nas.approve(&second, text(&card["action"]["digest"]))?;
    require(decided["state"] == "approved", || format!("the right digest approves; it says {}", decided["state"]))?;
    let now = content(nas, &lease, dir, "one.txt")?;
    require(now == b"1 changed later\n", || "main holds exactly what the card showed; it does not".to_owned())?;
    // Not replayable: the same approval once more merges nothing more.
    let again = nas.approve(&second, text(&card["action"]["digest"]));
    let same = again.as_ref().map_or(true, |again| again["commit"] == decided["commit"]);
    require(same, || "the same approval again makes no second merge; it did".to_owned())
}

fn denied_is_final(nas: &Subject, dir: &str) -> Verdict {
    let lease = nas.run_in(dir)?;
    nas.mount(&lease, dir, "branch")?.write_file("two.txt", b"2 denied\n")?;
    let gate = nas.propose(&lease)?;
    let card = nas.card(&gate)?;
    nas.decide("gate/deny", json!({ "gate": gate, "reason": "conformance" }))?;
    let revived = merged(&nas.approve(&gate, text(&card["action"]["digest"])));
    require(!revived, || "a denied gate cannot be approved; it was".to_owned())?;
    let now = content(nas, &lease, dir, "two.txt")?;
    require(now == b"2 old\n", || "main is as it was after a denial; it changed".to_owned())
}

/// Main moved under the proposal, in the same file: the approval is void and nothing is settled in silence.
fn main_moved(nas: &Subject, dir: &str) -> Verdict {
    let (mine, theirs) = (nas.run_in(dir)?, nas.run_in(dir)?);
    nas.mount(&mine, dir, "branch")?.write_file("two.txt", b"2 mine\n")?;
    nas.mount(&theirs, dir, "branch")?.write_file("two.txt", b"2 theirs\n")?;
    let gate = nas.propose(&mine)?;
    let card = nas.card(&gate)?;
    nas.merge(&theirs)?;
    let settled = merged(&nas.approve(&gate, text(&card["action"]["digest"])));
    require(!settled, || "an approval is void when main moved in the same file; it was accepted".to_owned())?;
    let now = content(nas, &mine, dir, "two.txt")?;
    require(now == b"2 theirs\n", || "main keeps what was merged first; it does not".to_owned())
}

fn merged(answer: &Result<Value, crate::subject::Refused>) -> bool {
    answer.as_ref().is_ok_and(|decided| decided["state"] == "approved")
}
