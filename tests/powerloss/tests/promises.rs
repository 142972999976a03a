//! Goal: the harness finds a promise that was not kept, and finds nothing where it was kept.

#![allow(clippy::unwrap_used, reason = "helpers of a test may panic like the test itself")]

use std::fs::File;
use std::io::Write;
use std::path::Path;

use nas_powerloss::{Crash, Log, Recorder, Report, Sweep};
use nas_testkit::or_skip;

const DISK_BYTES: u64 = 256 << 20;
const FILES: usize = 6;

fn contents(number: usize) -> Vec<u8> {
    format!("file number {number}\n").into_bytes().repeat(500 * (number + 1))
}

/// A program that writes files one by one and says "done" after each; `sync` makes that an honest word.
fn record(sync: impl Fn(usize, &Path)) -> Option<Log> {
    let recorder = or_skip(Recorder::start(DISK_BYTES))?;
    for number in 0..FILES {
        let path = recorder.mount_dir().join(number.to_string());
        let mut file = File::create(&path).unwrap();
        file.write_all(&contents(number)).unwrap();
        drop(file);
        sync(number, &path);
        recorder.marker(&number.to_string()).unwrap();
    }
    Some(recorder.stop().unwrap())
}

fn look(crash: &Crash<'_>) -> Result<(), String> {
    for marker in crash.promised {
        let number: usize = marker.text.parse().unwrap();
        match std::fs::read(crash.dir.join(&marker.text)) {
            Ok(bytes) if bytes == contents(number) => {}
            Ok(bytes) => return Err(format!("file {number} has {} bytes and not its contents", bytes.len())),
            Err(error) => return Err(format!("file {number}: {error}")),
        }
    }
    Ok(())
}

fn sweep(log: &Log) -> Report {
    let started = std::time::Instant::now();
    let report = log.sweep(&Sweep { random_subsets: 2, ..Sweep::default() }, look).unwrap();
    let (writes, bytes) = log.written();
    println!("{writes} writes, {bytes} bytes, {} flushes: {report}; {:?}", log.flush_points().len(), started.elapsed());
    report
}

/// Goal: with an fsync of each file and of its directory no power cut loses what was promised.
#[test]
fn kept_promises_survive() {
    let sync = |_, path: &Path| {
        File::open(path).unwrap().sync_all().unwrap();
        File::open(path.parent().unwrap()).unwrap().sync_all().unwrap();
    };
    let Some(log) = record(sync) else { return };
    assert_eq!(log.markers().len(), FILES);
    assert!(log.flush_points().len() >= FILES, "every fsync reaches the disk");
    let report = sweep(&log);
    assert!(report.checked > 4 * FILES);
    assert!(report.losses.is_empty(), "{report}");
}

/// Goal: one missing fsync turns the test red, and it says which file.
#[test]
fn one_missing_fsync_is_found() {
    const FORGOTTEN: usize = 3;
    let sync = |number, path: &Path| {
        if number != FORGOTTEN {
            File::open(path).unwrap().sync_all().unwrap();
        }
    };
    let Some(log) = record(sync) else { return };
    let report = sweep(&log);
    assert!(!report.losses.is_empty(), "{report}");
    assert!(report.losses.iter().all(|loss| loss.message.starts_with("file 3")), "{report}");
}
