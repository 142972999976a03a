//! Disks that are full to the last byte, for the pool and for the ledger: a clear error, nothing lost, nasd alive,
//! deleting frees space and work goes on, also after a restart while full (DESIGN §3: space is a safety state).

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use nas_e2e::{Answer, Leased, PATIENCE, TestBox, passphrase, refused};
use nas_nfsclient::nfs3::stable_how;
use nas_nfsclient::{Client, Status};
use nas_testkit::disk::{MIB, Mounted, SmallDisk, run};
use nas_testkit::{Scratch, or_skip, wait_until};
use nas_types::lease::{Action, View};
use nas_types::verb::{
    BoxStatus, BranchCommit, BranchShow, CheckpointCreate, GateCard, GateDeny, GateShow, LeaseCreate, LeaseRevoke,
    Proposed, RecordVerify,
};

const DIR: &str = "/shared/launch";
const RESERVE_MIB: u64 = 32;

/// A box whose pool is `pool`, a small disk of its own.
fn start(data: &Path, pool: &SmallDisk) -> anyhow::Result<(Mounted, TestBox)> {
    let dir = data.join("pool");
    std::fs::create_dir_all(&dir)?;
    run(Command::new("mount").arg("--bind").arg(pool.path()).arg(&dir))?;
    let mounted = Mounted::adopt(&dir);
    let reserve = RESERVE_MIB.to_string();
    let more = ["--reserve-mib", &reserve, "--reserve-percent", "1", "--ballast-kib", "2048"];
    let mut nas = TestBox::on_btrfs(data, &more);
    nas.boot()?;
    nas.init_owner()?;
    let source = Scratch::new("source");
    source.write("notes.md", "first\n");
    nas.import(source.path(), DIR).map_err(refused)?;
    Ok((mounted, nas))
}

/// Writes `name` in pieces until the server says no; what it said, and the bytes that went in.
fn write_until_refused(client: &mut Client, name: &str) -> anyhow::Result<(Status, u64)> {
    let file = client.write_file(name, b"")?;
    let piece = vec![7; 512 << 10];
    let mut at = 0;
    loop {
        match client.write(&file, at, &piece, stable_how::FILE_SYNC) {
            Ok(written) => at += u64::from(written.count),
            Err(error) => return Ok((error.status().ok_or(error)?, at)),
        }
        anyhow::ensure!(at < 1 << 30, "the disk never gets full");
    }
}

/// A change on main's notes, committed by the client and proposed.
fn proposed(nas: &TestBox, content: &str) -> anyhow::Result<(Leased, Client, Proposed)> {
    let lease = nas.full_lease(DIR).map_err(refused)?;
    let mut client = nas.mount(&lease, DIR)?;
    client.write_file("notes.md", content.as_bytes())?;
    let proposed = nas.propose(&lease).map_err(refused)?;
    Ok((lease, client, proposed))
}

fn main_notes(nas: &TestBox, lease: &Leased) -> anyhow::Result<Vec<u8>> {
    Ok(nas.mount_view(lease, DIR, View::Main)?.read_file("notes.md")?)
}

fn level(nas: &TestBox) -> Answer<(String, Vec<String>)> {
    nas.as_owner(&BoxStatus::default()).map(|status| (status.level, status.causes))
}

fn wait_for_level(nas: &TestBox, wanted: &str) {
    let reached = wait_until(PATIENCE, || level(nas).is_ok_and(|(level, _)| level == wanted));
    assert!(reached, "the level is {:?} and not {wanted}", level(nas));
}

/// Code and sentence of a refusal for want of space.
fn assert_full<T: std::fmt::Debug>(answer: Answer<T>, codes: &[&str]) {
    let error = answer.expect_err("because there is no space");
    assert!(codes.contains(&error.code.as_str()), "{}: {}", error.code, error.message);
    assert!(error.message.contains("full") || error.message.contains("space"), "not clear: {}", error.message);
}

/// Goal: ordinary writes stop at the reserve, with an error that says so, while deleting is always possible and makes
/// room at once.
#[test]
fn writes_stop_at_the_reserve() -> anyhow::Result<()> {
    let Some(pool) = or_skip(SmallDisk::btrfs(160 * MIB)) else { return Ok(()) };
    let scratch = Scratch::new("full");
    let (_mounted, nas) = start(&scratch.join("data"), &pool)?;
    let lease = nas.full_lease(DIR).map_err(refused)?;
    let mut client = nas.mount(&lease, DIR)?;
    client.write_file("keep", b"kept\n")?;
    let (status, written) = write_until_refused(&mut client, "big")?;
    assert_eq!(status, Status::NFS3ERR_NOSPC);
    assert!(written > 32 * MIB, "only {written} bytes fit");
    assert!(pool.available() > RESERVE_MIB * MIB / 2, "the reserve was used: {} bytes are left", pool.available());
    wait_for_level(&nas, "no_new_runs");
    let refused_run = nas.full_lease(DIR).err().map(|error| error.code);
    assert_eq!(refused_run.as_deref(), Some("degraded"));

    client.remove_path("big")?;
    let again = wait_until(PATIENCE, || client.write_file("more", &vec![1; 1 << 20]).is_ok());
    assert!(again, "deleting made no room");
    assert_eq!(client.read_file("keep")?, b"kept\n");
    Ok(())
}

/// Goal: with not one byte left in the pool every verb fails clearly and loses nothing; nasd starts; once there is
/// room, what waited is done.
#[test]
fn a_full_pool() -> anyhow::Result<()> {
    let Some(pool) = or_skip(SmallDisk::btrfs(160 * MIB)) else { return Ok(()) };
    let scratch = Scratch::new("full");
    let (_mounted, mut nas) = start(&scratch.join("data"), &pool)?;
    let (waiting, _, gate) = proposed(&nas, "second\n")?;
    let card = nas.card(&gate).map_err(refused)?;
    let lease = nas.full_lease(DIR).map_err(refused)?;
    let mut client = nas.mount(&lease, DIR)?;
    let held = client.write_file("held", b"kept\n")?;
    client.write_file("ballast", &vec![5; 1 << 20])?;
    // A clean branch is the harder case: its first change, also a deletion, has to be marked on the full disk.
    let clean = wait_until(PATIENCE, || {
        nas.call(Some(&lease.token), &BranchShow::default()).is_ok_and(|branch| branch.dirty_paths == 0)
    });
    assert!(clean, "no automatic commit");
    pool.fill("outside")?;

    for round in ["filled", "restarted while full"] {
        wait_for_level(&nas, "no_new_runs");
        let (_, causes) = level(&nas).map_err(refused)?;
        assert!(causes.iter().any(|cause| cause.contains("space")), "{round}: {causes:?}");
        let write = client.write(&held, 0, &vec![9; 64 << 10], stable_how::FILE_SYNC).unwrap_err();
        assert_eq!(write.status(), Some(Status::NFS3ERR_NOSPC), "{round}");
        let create = client.write_file(format!("new {round}"), b"x").unwrap_err();
        assert_eq!(create.status(), Some(Status::NFS3ERR_NOSPC), "{round}");
        assert_full(nas.approve(&card), &["no_space"]);
        assert_eq!(nas.card(&gate).map_err(refused)?.state, "pending", "{round}");
        assert_eq!(main_notes(&nas, &waiting)?, b"first\n", "{round}");
        // Whether there is something to commit depends on when the last commit was; it may only fail clearly.
        if let Err(error) = nas.call(Some(&lease.token), &BranchCommit::default()) {
            assert_full::<()>(Err(error), &["no_space"]);
        }
        assert_full(nas.propose(&lease), &["no_space"]);
        assert_eq!(client.read_all(&held)?, b"kept\n", "{round}");
        assert!(nas.as_owner(&RecordVerify::default()).map_err(refused)?.ok, "{round}");
        assert!(nas.is_running(), "{round}: nasd ended");
        if round == "filled" {
            nas.restart()?;
            client = client.reconnect()?;
        }
    }

    client.remove_path("ballast").context("deleting on a full disk")?;
    std::fs::remove_file(pool.join("outside"))?;
    rustix::fs::syncfs(std::fs::File::open(pool.path())?)?;
    wait_for_level(&nas, "none");
    assert_eq!(nas.approve(&card).map_err(refused)?.state, "approved");
    assert_eq!(main_notes(&nas, &waiting)?, b"second\n");
    client.write_file("held", b"goes on\n").context("writing once there is room")?;
    nas.propose(&lease).map_err(refused)?;
    Ok(())
}

/// Goal: with not one byte left for the ledger nothing is done that could not be recorded; what narrows authority still
/// works; nasd starts; once there is room, work goes on.
#[test]
fn a_full_ledger() -> anyhow::Result<()> {
    let Some(pool) = or_skip(SmallDisk::btrfs(256 * MIB)) else { return Ok(()) };
    let Some(disk) = or_skip(SmallDisk::ext4(32 * MIB)) else { return Ok(()) };
    let (_mounted, mut nas) = start(&disk.join("data"), &pool)?;
    let (waiting, _, gate) = proposed(&nas, "second\n")?;
    let (_, _, denied) = proposed(&nas, "third\n")?;
    let (revoked, _, _) = proposed(&nas, "fourth\n")?;
    let card = nas.card(&gate).map_err(refused)?;
    let lease = nas.full_lease(DIR).map_err(refused)?;
    let mut client = nas.mount(&lease, DIR)?;
    client.write_file("held", b"kept\n")?;
    disk.fill("outside")?;

    // The box says so before a write fails, and takes no new runs.
    wait_for_level(&nas, "no_new_runs");
    let (_, causes) = level(&nas).map_err(refused)?;
    assert!(causes.iter().any(|cause| cause.contains("ledger")), "{causes:?}");
    assert_eq!(nas.full_lease(DIR).err().map(|error| error.code).as_deref(), Some("degraded"));
    // The ledger writes on in the file it has for a while: work until it says no.
    let checkpoint = |number: usize| {
        let create = CheckpointCreate { name: format!("c{number}") };
        nas.call(Some(&lease.token), &create)
    };
    let stopped = (0..5000).map(checkpoint).find_map(Result::err);
    assert_full::<()>(Err(stopped.ok_or_else(|| anyhow::anyhow!("the ledger never gets full"))?), &["ledger"]);
    assert_full(nas.approve(&card), &["ledger"]);
    assert_eq!(main_notes_seen(&nas, &gate)?, "pending");
    client.write_file("held", b"goes on\n")?;
    assert_full(nas.propose(&lease), &["ledger"]);

    // What narrows is still possible: the ballast makes room.
    let deny = GateDeny { gate: denied.gate, passphrase: passphrase(), reason: None };
    assert_eq!(nas.as_owner(&deny).map_err(refused)?.state, "denied");
    nas.as_owner(&LeaseRevoke { lease: revoked.info.lease, why: None }).map_err(refused)?;

    disk.fill("outside too")?;
    nas.restart()?;
    client = client.reconnect()?;
    assert_eq!(client.read_file("held")?, b"goes on\n");
    assert_eq!(
        nas.call(Some(&revoked.token), &BranchShow::default()).err().map(|e| e.code).as_deref(),
        Some("lease_over")
    );
    assert!(nas.as_owner(&RecordVerify::default()).map_err(refused)?.ok);
    assert!(nas.is_running());

    std::fs::remove_file(disk.join("outside"))?;
    std::fs::remove_file(disk.join("outside too"))?;
    wait_for_level(&nas, "none");
    assert_eq!(nas.approve(&card).map_err(refused)?.state, "approved");
    assert_eq!(main_notes(&nas, &waiting)?, b"second\n");
    nas.propose(&lease).map_err(refused)?;
    assert!(nas.as_owner(&RecordVerify::default()).map_err(refused)?.ok);
    Ok(())
}

fn main_notes_seen(nas: &TestBox, gate: &Proposed) -> anyhow::Result<String> {
    let card: GateCard = nas.as_owner(&GateShow { gate: gate.gate }).map_err(refused)?;
    Ok(card.state)
}

/// Goal: a branch bomb ends at its quota, at most one operation beyond; what is deleted may be written again.
#[test]
fn a_branch_keeps_to_its_quota() -> anyhow::Result<()> {
    const QUOTA: u64 = 4 * MIB;
    let nas = TestBox::start()?;
    let create = LeaseCreate {
        tree: None,
        role: Some("cleo".parse().expect("because it is a legal role")),
        paths: vec![format!("{DIR}/**")],
        actions: Action::ALL.to_vec(),
        ttl_seconds: None,
        purpose: None,
        quota_bytes: Some(QUOTA),
    };
    let source = Scratch::new("source");
    source.write("notes.md", "first\n");
    nas.import(source.path(), DIR).map_err(refused)?;
    let created = nas.as_owner(&create).map_err(refused)?;
    let lease = Leased { info: created.lease, token: created.token };
    let mut client = nas.mount(&lease, DIR)?;
    let (status, written) = write_until_refused(&mut client, "bomb")?;
    assert_eq!(status, Status::NFS3ERR_DQUOT);
    assert!(written <= QUOTA + (512 << 10), "{written} bytes were written");
    assert!(nas.call(Some(&lease.token), &BranchShow::default()).map_err(refused)?.quota_bytes == QUOTA);
    client.remove_path("bomb")?;
    client.write_file("small", &vec![1; 64 << 10])?;
    Ok(())
}
