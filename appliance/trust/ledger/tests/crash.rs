//! A process killed in the middle of writing: what was acknowledged is there, the chain verifies, the ledger goes on.
#![allow(clippy::unwrap_used, reason = "a test")]

mod sample;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nas_ledger::{Head, Ledger, LedgerError, NewRecord, Options};
use sample::{T, open};

const CHILD_DIR: &str = "NAS_LEDGER_TEST_CHILD_DIR";

/// Not a test of its own: the process that is killed. Appends intents and outcomes from three threads and prints each head it was told.
#[test]
#[ignore = "the child of the other tests here"]
fn child_writer() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let ledger = open(Path::new(&dir));
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let ledger = &ledger;
            scope.spawn(move || {
                for n in 0..100_000 {
                    let purpose = Some(format!("{worker}.{n} {}", "x".repeat(n % 3000)));
                    let head = ledger.write(|tx| {
                        let intent = tx.append(&NewRecord::intent("test.intent", T))?;
                        tx.put_kv(&format!("worker{worker}"), &n.to_le_bytes())?;
                        tx.append(&NewRecord { purpose, ..NewRecord::outcome("test.done", T, intent.seq) })
                    });
                    let head = head.unwrap();
                    println!("ack {} {} {worker} {n}", head.seq, head.hash_hex());
                }
            });
        }
    });
}

fn spawn(dir: &Path, failpoint: Option<&str>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_writer", "--ignored", "--nocapture"]).env(CHILD_DIR, dir);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    if let Some(name) = failpoint {
        command.env("NAS_FAILPOINT", name);
    }
    command.spawn().unwrap()
}

/// Kills after `acks` acknowledgements (or lets the failpoint do it); the newest acknowledged head and each worker's last number.
fn acknowledged(mut child: Child, acks: usize) -> (Head, [Option<usize>; 3]) {
    let mut newest = Head::default();
    let mut last = [None; 3];
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    // The first line may follow the harness's own words, without a line break.
    let acked = lines.filter_map(|line| line.split_once("ack ").map(|(_, rest)| rest.to_owned()));
    for (count, line) in acked.enumerate() {
        let words: Vec<&str> = line.split(' ').collect();
        let [seq, hash, worker, n] = words[..] else { continue };
        let (Ok(seq), Ok(n)) = (seq.parse::<u64>(), n.parse()) else { continue };
        if seq > newest.seq {
            newest = Head::from_hex(seq, hash).unwrap();
        }
        last[worker.parse::<usize>().unwrap()] = Some(n);
        if count + 1 == acks {
            child.kill().unwrap();
        }
    }
    let status = child.wait().unwrap();
    assert!(!status.success(), "the child must have been killed, not have ended");
    (newest, last)
}

fn check(dir: &Path, newest: Head, last: [Option<usize>; 3]) {
    let ledger = open(dir);
    let report = ledger.verify(Some(newest)).unwrap();
    assert_eq!(report.fault, None);
    // All or nothing of each closure: intent, value and outcome.
    assert!(ledger.read(|r| r.open_intents()).unwrap().is_empty());
    for (worker, last) in last.into_iter().enumerate() {
        let stored = ledger.read(|r| r.kv(&format!("worker{worker}"))).unwrap();
        let stored = stored.map(|bytes| usize::from_le_bytes(bytes.try_into().unwrap()));
        assert!(stored >= last, "worker {worker} was told of {last:?}, stored is {stored:?}");
    }
    let head = ledger.write(|tx| tx.append(&NewRecord::event("after", T))).unwrap();
    assert_eq!(head.seq, report.count + 1);
    assert!(ledger.verify(Some(head)).unwrap().is_ok());
}

/// Goal: kill -9 at any moment of writing loses nothing that was acknowledged.
#[test]
fn killed_while_writing() {
    for acks in [1, 8, 40, 150] {
        let dir = tempfile::tempdir().unwrap();
        let (newest, last) = acknowledged(spawn(dir.path(), None), acks);
        assert!(newest.seq > 0);
        check(dir.path(), newest, last);
    }
}

/// Goal: killed right before and right after a COMMIT, also twice in a row on the same ledger.
#[test]
fn killed_at_the_commit() {
    for point in ["ledger.commit.before", "ledger.commit.after"] {
        let dir = tempfile::tempdir().unwrap();
        for nth in [1, 2, 9, 30] {
            let (newest, last) = acknowledged(spawn(dir.path(), Some(&format!("{point}:{nth}"))), usize::MAX);
            check(dir.path(), newest, last);
        }
    }
}

/// Goal: a killed owner leaves no lock behind, and while it lives nobody else gets in.
#[test]
fn one_owner_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = spawn(dir.path(), None);
    let mut first = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    while !first.contains("ack ") {
        first.clear();
        assert_ne!(out.read_line(&mut first).unwrap(), 0);
    }
    let path = dir.path().join("ledger.db");
    let refused = Ledger::open(&path, Options { ballast_bytes: 0 });
    // The child blocks on its pipe at some point, it does not end.
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(matches!(refused, Err(LedgerError::InUse { .. })), "{refused:?}");
    assert!(open(dir.path()).verify(None).unwrap().is_ok());
}
