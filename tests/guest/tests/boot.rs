//! Goal: the harness itself works, so that a red test of the server is about the server.

#![allow(clippy::unwrap_used, reason = "helpers of a test may panic like the test itself")]

use std::time::Duration;

use nas_guest::{Error, Guest};
use nas_testkit::or_skip;

/// Where no guest can be had (no emulator, no kernel) the test is skipped; CI forbids that.
fn boot(builder: nas_guest::Builder) -> Option<Guest> {
    match builder.boot() {
        Err(error @ (Error::NoProgram { .. } | Error::NoKernelPackage { .. } | Error::Command { .. })) => {
            or_skip::<Guest, _>(Err(error))
        }
        other => Some(other.expect("because nothing is missing, the guest boots")),
    }
}

/// Goal: one machine serves a whole conversation: statuses, bytes, shipped files and programs, overlapping commands,
/// a hung command that does not silence the others, and the NFSv3 client is there.
#[test]
fn a_conversation() {
    let dir = tempfile::tempdir().unwrap();
    let payload: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(dir.path().join("payload"), &payload).unwrap();
    std::fs::create_dir(dir.path().join("tree")).unwrap();
    std::fs::write(dir.path().join("tree/leaf"), "leaf").unwrap();
    let builder = Guest::builder().file(dir.path().join("payload")).file(dir.path().join("tree"));
    // A dynamically linked program of the host, to see that its libraries come along.
    let Some(guest) = boot(builder.program("/usr/bin/getfattr")) else { return };
    println!("boot {:?}, agent says {}", guest.boot_time(), guest.greeting());

    assert_eq!(guest.run("echo out; echo err >&2; exit 3").unwrap().status, 3);
    assert_eq!(guest.run_ok("echo out; echo err >&2").unwrap(), "out\nerr");
    assert_eq!(guest.run("cat payload").unwrap().bytes, payload, "every byte comes back");
    assert_eq!(guest.run_ok("cat tree/leaf").unwrap(), "leaf");
    assert_eq!(guest.run(r"printf '\377\000\n'").unwrap().bytes, b"\xff\0\n");
    assert!(guest.run_ok("getfattr --version").unwrap().starts_with("getfattr "));

    let hung = guest.start("while [ ! -e /tmp/go ]; do sleep 0.1; done; echo went").unwrap();
    assert!(matches!(hung.wait_for(Duration::ZERO), Err(Error::TimedOut { .. })));
    guest.run_ok("touch /tmp/go").unwrap();
    assert_eq!(hung.wait().unwrap().text(), "went\n");

    let modules = guest.run_ok("need nfsv3 && cat /proc/filesystems /proc/modules").unwrap();
    assert!(modules.lines().any(|line| line.trim() == "nodev\tnfs"), "{modules}");
    assert!(modules.lines().any(|line| line.starts_with("nfsv3 ")), "{modules}");

    // Nobody listens on that port: the real client says so, and its message reaches the test.
    let refused = guest.mount_nfs(9, 9, "/it's", "/mnt/x", "soft,timeo=10,retrans=1,retry=0").unwrap_err();
    assert!(matches!(&refused, Error::Status { output, .. } if output.contains("mount")), "{refused}");
    assert!(matches!(guest.run_ok("false"), Err(Error::Status { status: 1, .. })));
}

/// Goal: a machine that dies is reported as gone, at once, to whoever waits and whoever asks later.
#[test]
fn death_is_noticed() {
    let Some(guest) = boot(Guest::builder()) else { return };
    let waiting = guest.start("sleep 100000").unwrap();
    let last = guest.run("poweroff -f");
    assert!(matches!(last, Err(Error::Gone { .. })), "{last:?}");
    assert!(matches!(waiting.wait(), Err(Error::Gone { .. })));
    assert!(matches!(guest.run("true"), Err(Error::Gone { .. })));
}

/// Goal: the one-shot form reports the script's status and output; a disk of the host is a disk of the guest.
#[test]
fn one_script() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk.img");
    std::fs::write(&disk, vec![0; 1 << 20]).unwrap();
    let script = "printf marked | dd of=/dev/vdb conv=notrunc,fsync 2>/dev/null; uname -r; exit 5";
    let outcome = match Guest::builder().disk(&disk).job(script).mem(192).run() {
        Err(error @ (Error::NoProgram { .. } | Error::NoKernelPackage { .. })) => {
            assert!(or_skip::<(), _>(Err(error)).is_none());
            return;
        }
        other => other.unwrap(),
    };
    println!("boot {:?}, whole cycle {:?}", outcome.boot, outcome.total);
    assert_eq!(outcome.status, 5);
    assert_eq!(outcome.output.trim(), nas_guest::prepare().unwrap().version());
    assert!(std::fs::read(&disk).unwrap().starts_with(b"marked"));
}
