//! L1.6: the record chain verifies; after tampering with one record it fails (REC-1, REC-3).
//!
//! The box's own verification is asked, and the published rule (docs/record-chain.md) is applied here to what the box
//! exports: tampering is done to the export, which is all that a black box lets one touch.

use serde_json::{Value, json};

use crate::chain::{self, Broken};
use crate::report::{Miss, Verdict, require};
use crate::subject::Subject;

pub(crate) fn run(nas: &Subject) -> Verdict {
    let dir = nas.dir("l1_6");
    let kept = nas.owner("record/head", &json!({}))?;
    let mark = nas.head()?;
    nas.import(&dir, &[("file", "old\n")])?;
    let lease = nas.run_in(&dir)?;
    nas.mount(&lease, &dir, "branch")?.write_file("file", b"new\n")?;
    nas.merge(&lease)?;
    box_verifies(nas, &kept)?;

    let newest = nas.owner("record/head", &json!({}))?;
    let mut records = nas.records_from(mark.max(1))?;
    records.retain(|record| record["seq"].as_u64() <= newest["seq"].as_u64());
    require(records.len() > 4, || format!("an import and a merge are in the records; {} are there", records.len()))?;
    let verified = chain::verify(&records);
    require(verified.is_ok(), || format!("the exported records verify by the published rule; {}", told(verified)))?;
    let ends = |record: Option<&Value>, head: &Value| record.is_some_and(|record| record["hash"] == head["hash"]);
    require(ends(records.last(), &newest), || "the newest record is the head of the chain; it is not".to_owned())?;
    let from_kept = mark == 0 || ends(records.first(), &kept);
    require(from_kept, || "the chain goes on from the head that was kept before; it does not".to_owned())?;

    tampered(&records)?;
    intents_have_outcomes(&records)
}

/// The published command says yes, also with a head kept from earlier, and no to a head that never was.
fn box_verifies(nas: &Subject, kept: &Value) -> Verdict {
    for anchor in [Value::Null, kept.clone()] {
        let verified = nas.owner("record/verify", &json!({ "anchor": anchor }))?;
        require(verified["ok"] == true, || format!("record/verify says ok; it says {}", verified["because"]))?;
    }
    let mut forged = kept.clone();
    forged["hash"] = "0".repeat(64).into();
    let fooled = nas.owner("record/verify", &json!({ "anchor": forged })).is_ok_and(|said| said["ok"] == true);
    require(!fooled, || "record/verify against a head that never was fails; it says ok".to_owned())
}

/// Every change to one record is found, where it is.
fn tampered(records: &[Value]) -> Verdict {
    let at = records.len() / 2;
    for field in ["principal", "kind", "rule", "time", "detail", "prev_hash", "hash"] {
        let mut changed = records.to_vec();
        changed[at][field] = match field {
            "time" => "2001-01-01T00:00:00Z".into(),
            "prev_hash" | "hash" => "0".repeat(64).into(),
            _ => "tampered".into(),
        };
        let found = chain::verify(&changed);
        require(found.is_err(), || format!("a changed {field} of one record is found; it is not"))?;
    }
    let mut dropped = records.to_vec();
    dropped.remove(at);
    require(chain::verify(&dropped).is_err(), || "a dropped record is found; it is not".to_owned())
}

/// An act with consequences is recorded before it takes effect (REC-1): each outcome names an earlier intent.
fn intents_have_outcomes(records: &[Value]) -> Verdict {
    let outcomes: Vec<_> = records.iter().filter(|record| !record["intent"].is_null()).collect();
    require(!outcomes.is_empty(), || "a merge leaves an intent and an outcome; there is no outcome".to_owned())?;
    for outcome in outcomes {
        let earlier = outcome["intent"].as_u64() < outcome["seq"].as_u64();
        require(earlier, || "an outcome names an earlier intent (REC-1); it does not".to_owned())?;
    }
    Ok::<(), Miss>(())
}

fn told(verified: Result<(), Broken>) -> String {
    verified.err().map_or_else(String::new, |broken| broken.to_string())
}
