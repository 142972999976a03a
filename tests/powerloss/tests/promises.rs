//! Goal: the harness finds a promise that was not kept, and finds nothing where it was kept.

#![allow(clippy::unwrap_used, reason = "helpers of a test may panic like the test itself")]

use std::fs::File;
use std::io::{BufRead, Write};
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

fn mounts_and_loops() -> String {
    let backing =
        |name: &std::ffi::OsStr| std::fs::read_to_string(Path::new("/sys/block").join(name).join("loop/backing_file"));
    let devices = std::fs::read_dir("/sys/block").unwrap().flatten();
    let loops: String = devices.filter_map(|device| backing(&device.file_name()).ok()).collect();
    std::fs::read_to_string("/proc/self/mounts").unwrap() + &loops
}

/// Goal: a recording that is still in use does not end quietly, and whatever happens to it, nothing stays mounted.
#[test]
fn nothing_stays_behind() {
    let Some(recorder) = or_skip(Recorder::start(DISK_BYTES)) else { return };
    let place = recorder.mount_dir().parent().unwrap().to_str().unwrap().to_owned();
    let held = File::create(recorder.mount_dir().join("held")).unwrap();
    assert!(mounts_and_loops().contains(&place));
    assert!(matches!(recorder.stop(), Err(nas_powerloss::Error::Busy(_))));
    drop(held);
    assert!(nas_testkit::wait_until(std::time::Duration::from_secs(30), || !mounts_and_loops().contains(&place)));
}

/// Goal: another program can put markers too, with the means of a shell.
#[test]
fn a_shell_can_promise() {
    let Some(recorder) = or_skip(Recorder::start(DISK_BYTES)) else { return };
    let mark = recorder.marker_path();
    let script = "printf one > \"$0\"; printf two >> \"$0\"";
    let status = std::process::Command::new("sh").arg("-c").arg(script).arg(&mark).status().unwrap();
    assert!(status.success());
    let log = recorder.stop().unwrap();
    let texts: Vec<&str> = log.markers().iter().map(|marker| marker.text.as_str()).collect();
    assert_eq!(texts, ["one", "two"]);
}

/// Set for the child of `an_orphaned_disk_takes_itself_down`.
const ORPHAN: &str = "NAS_POWERLOSS_ORPHAN";

/// Goal: a test program killed in the middle of a recording leaves no mount and no loop device.
#[test]
fn an_orphaned_disk_takes_itself_down() {
    if std::env::var_os(ORPHAN).is_some() {
        // The child: record, say where, and wait to be killed.
        let recorder = Recorder::start(DISK_BYTES).unwrap();
        println!("\nplace {}", recorder.mount_dir().parent().unwrap().display());
        std::thread::park();
    }
    let Some(probe) = or_skip(Recorder::start(DISK_BYTES)) else { return };
    drop(probe);
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "an_orphaned_disk_takes_itself_down", "--nocapture"]).env(ORPHAN, "1");
    let mut child = nas_testkit::Process::spawn(command.stdout(std::process::Stdio::piped())).unwrap();
    let stdout = std::io::BufReader::new(child.child().stdout.take().unwrap());
    let place = stdout.lines().map_while(Result::ok).find_map(|line| line.strip_prefix("place ").map(str::to_owned));
    let place = place.expect("because the child says where it records");
    assert!(mounts_and_loops().contains(&place));
    child.kill();
    assert!(nas_testkit::wait_until(std::time::Duration::from_secs(30), || !mounts_and_loops().contains(&place)));
    std::fs::remove_dir_all(place).unwrap();
}
