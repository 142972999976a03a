//! What a hostile or odd NFS client may try to change: calls sent twice, modes, devices, hard links and renames over
//! the edge of a lease, old handles, floods. Right answers, none of them a panic.

use anyhow::{Result, ensure};
use nas_e2e::attack::{narrowed, refusal, refusals, sound, start, unchecked};
use nas_e2e::{PATIENCE, refused};
use nas_nfsclient::Status;
use nas_nfsclient::client::{at, mode};
use nas_nfsclient::nfs3::*;
use nas_testkit::{is_root, wait_until};
use nas_types::verb::RecordList;

fn status<T, E>(result: &Nfs3Result<T, E>) -> Status {
    match result {
        Nfs3Result::Ok(_) => Status::NFS3_OK,
        Nfs3Result::Err((status, _)) => *status,
    }
}

/// Goal: a call that comes twice, the second time over a new connection as after a broken one, is run once and gets the
/// same reply; a new call of the same kind is a new one (RFC 1813 §4.5, chimera 72).
#[test]
fn sent_twice() -> Result<()> {
    let mut nas = start()?;
    let cleo = nas.full_lease("/shared/launch").map_err(refused)?;
    let mut work = nas.mount(&cleo, "/shared/launch")?;
    let root = work.root();
    let mut xid = 0x5eed_0000_u32;
    macro_rules! twice {
        ($procedure:ident, $result:ty, $args:expr, $again:ident) => {{
            xid += 1;
            let args = $args;
            let first: $result = work.raw_with_xid(xid, NFS_PROGRAM::$procedure, &args)?;
            assert_eq!(status(&first), Status::NFS3_OK, stringify!($procedure));
            let second: $result = work.reconnect()?.raw_with_xid(xid, NFS_PROGRAM::$procedure, &args)?;
            assert_eq!(format!("{first:?}"), format!("{second:?}"), stringify!($procedure));
            let fresh: $result = work.raw_with_xid(xid + 0x1000, NFS_PROGRAM::$procedure, &args)?;
            assert_eq!(status(&fresh), Status::$again, stringify!($procedure));
        }};
    }
    let guarded = |name: &'static [u8]| CREATE3args { where_: at(&root, name), how: createhow3::GUARDED(mode(0o644)) };
    twice!(NFSPROC3_CREATE, CREATE3res, guarded(b"new"), NFS3ERR_EXIST);
    twice!(NFSPROC3_MKDIR, MKDIR3res, MKDIR3args { where_: at(&root, b"sub"), attributes: mode(0o755) }, NFS3ERR_EXIST);
    let symlink = || symlinkdata3 { symlink_attributes: mode(0o777), symlink_data: b"target"[..].into() };
    twice!(NFSPROC3_SYMLINK, SYMLINK3res, SYMLINK3args { where_: at(&root, b"l"), symlink: symlink() }, NFS3ERR_EXIST);
    let file = work.find("new")?.handle;
    twice!(NFSPROC3_LINK, LINK3res, LINK3args { file: file.clone(), link: at(&root, b"hard") }, NFS3ERR_EXIST);
    twice!(
        NFSPROC3_RENAME,
        RENAME3res,
        RENAME3args { from: at(&root, b"new"), to: at(&root, b"moved") },
        NFS3ERR_NOENT
    );
    twice!(NFSPROC3_REMOVE, REMOVE3res, REMOVE3args { object: at(&root, b"moved") }, NFS3ERR_NOENT);
    twice!(NFSPROC3_RMDIR, RMDIR3res, RMDIR3args { object: at(&root, b"sub") }, NFS3ERR_NOENT);
    // Another call that happens to have the same xid is no duplicate.
    let args = REMOVE3args { object: at(&root, b"hard") };
    let other: REMOVE3res = work.raw_with_xid(xid, NFS_PROGRAM::NFSPROC3_REMOVE, &args)?;
    assert_eq!(status(&other), Status::NFS3_OK);
    sound(&mut nas)
}

/// Goal: exclusive CREATE is one file for one verifier, over new connections and restarts, and EXIST for every other.
#[test]
fn exclusive_create() -> Result<()> {
    let mut nas = start()?;
    let cleo = nas.full_lease("/shared/launch").map_err(refused)?;
    let mut work = nas.mount(&cleo, "/shared/launch")?;
    let root = work.root();
    let exclusive = |verifier: u64| createhow3::EXCLUSIVE(createverf3(verifier.to_be_bytes()));
    let file = work.create(&root, b"lock", exclusive(7))?.handle;
    assert_eq!(work.create(&root, b"lock", exclusive(7))?.handle, file);
    assert_eq!(work.reconnect()?.create(&root, b"lock", exclusive(7))?.handle, file);
    assert_eq!(refusal(work.create(&root, b"lock", exclusive(8))), Status::NFS3ERR_EXIST);
    nas.kill();
    nas.boot()?;
    let mut work = work.reconnect()?;
    assert_eq!(work.create(&root, b"lock", exclusive(7))?.handle, file);
    assert_eq!(refusal(work.create(&root, b"lock", exclusive(8))), Status::NFS3ERR_EXIST);
    // The client sets the attributes when it has seen the success; from then on the verifier means nothing.
    work.setattr(&file, mode(0o600), None)?;
    assert_eq!(refusal(work.create(&root, b"lock", exclusive(7))), Status::NFS3ERR_EXIST);
    assert_eq!(refusal(work.create(&root, b"notes.md", exclusive(0))), Status::NFS3ERR_EXIST);
    assert_eq!(refusal(work.create(&root, b"dir", exclusive(0))), Status::NFS3ERR_EXIST);
    sound(&mut nas)
}

/// Goal: no setuid, no setgid, no device, no other owner, on any way; a file that is read-only from its first moment is
/// written by who made it.
#[test]
fn modes_and_devices() -> Result<()> {
    let mut nas = start()?;
    let cleo = nas.full_lease("/shared/launch").map_err(refused)?;
    let mut work = nas.mount(&cleo, "/shared/launch")?;
    let root = work.root();
    let file = work.find("notes.md")?.handle;
    for bad in [0o4755, 0o2755, 0o6777] {
        assert_eq!(refusal(work.setattr(&file, mode(bad), None)), Status::NFS3ERR_PERM);
        assert_eq!(refusal(work.setattr(&root, mode(bad), None)), Status::NFS3ERR_PERM);
        assert_eq!(refusal(work.create(&root, b"bad", createhow3::UNCHECKED(mode(bad)))), Status::NFS3ERR_PERM);
        assert_eq!(refusal(work.create(&root, b"bad", createhow3::GUARDED(mode(bad)))), Status::NFS3ERR_PERM);
        assert_eq!(refusal(work.mkdir(&root, b"bad", mode(bad))), Status::NFS3ERR_PERM);
        assert_eq!(refusal(work.mknod(&root, b"bad", mknoddata3::NF3FIFO(mode(bad)))), Status::NFS3ERR_PERM);
    }
    let spec = specdata3 { specdata1: 1, specdata2: 3 };
    let device = || devicedata3 { dev_attributes: mode(0o666), spec: spec.clone() };
    for what in [mknoddata3::NF3CHR(device()), mknoddata3::NF3BLK(device())] {
        assert_eq!(refusal(work.mknod(&root, b"bad", what)), Status::NFS3ERR_PERM);
    }
    let owner = |uid| sattr3 { uid: Nfs3Option::Some(uid), ..sattr3::default() };
    let group = |gid| sattr3 { gid: Nfs3Option::Some(gid), ..sattr3::default() };
    for other in [0, 1, 1001, u32::MAX] {
        assert_eq!(refusal(work.setattr(&file, owner(other), None)), Status::NFS3ERR_PERM);
        assert_eq!(refusal(work.setattr(&file, group(other), None)), Status::NFS3ERR_PERM);
        assert_eq!(refusal(work.create(&root, b"bad", createhow3::UNCHECKED(owner(other)))), Status::NFS3ERR_PERM);
    }
    work.setattr(&file, owner(1000), None)?;
    assert_eq!(work.find("bad").unwrap_err().status(), Some(Status::NFS3ERR_NOENT));
    assert_eq!(work.getattr(&file)?.mode & 0o7777, 0o644);

    // git and cp -p: mode 0444 or 0000 at once, then the bytes (agentfs 333).
    for (name, bits) in [("read-only", 0o444), ("nothing", 0)] {
        let new = createhow3::GUARDED(mode(bits));
        let made = work.create(&root, name.as_bytes(), new)?.handle;
        work.write(&made, 0, b"bytes", stable_how::UNSTABLE)?;
        work.commit(&made)?;
        assert_eq!(work.getattr(&made)?.mode & 0o7777, bits);
        assert_eq!(work.read_all(&made)?, b"bytes");
        work.rename(&root, name.as_bytes(), &root, b"renamed")?;
        work.remove(&root, b"renamed")?;
    }
    let made = work.mkdir(&root, b"locked", mode(0o555))?.handle;
    work.create(&made, b"in", unchecked())?;
    assert_eq!(work.getattr(&made)?.mode & 0o7777, 0o555);
    // Sizes at the edge.
    for size in [1 << 63, u64::MAX, u64::MAX - 1] {
        assert_eq!(refusal(work.truncate(&file, size)), Status::NFS3ERR_FBIG);
        assert_eq!(refusal(work.write(&file, size, b"x", stable_how::UNSTABLE)), Status::NFS3ERR_FBIG);
        assert!(work.read(&file, size, u32::MAX)?.0.is_empty());
    }
    let edge = i64::MAX as u64;
    assert!(work.read(&file, edge - 10, 1 << 20)?.0.is_empty());
    let far = refusal(work.write(&file, edge - 10, b"x", stable_how::UNSTABLE));
    ensure!(matches!(far, Status::NFS3ERR_DQUOT | Status::NFS3ERR_FBIG | Status::NFS3ERR_NOSPC), "{far}");
    let far = refusal(work.truncate(&file, edge));
    ensure!(matches!(far, Status::NFS3ERR_DQUOT | Status::NFS3ERR_FBIG | Status::NFS3ERR_NOSPC), "{far}");
    assert_eq!(work.read_all(&file)?, b"notes\n");
    sound(&mut nas)
}

/// Goal: what a lease does not hold cannot be reached, changed, covered or drawn in by hard links and renames; it is
/// not there, and the tries are recorded (SPEC MOUNT-3, MOUNT-5; L1.1).
#[test]
fn over_the_edge() -> Result<()> {
    let mut nas = start()?;
    let wide = nas.full_lease("/shared").map_err(refused)?;
    let mut all = nas.mount(&wide, "/shared")?;
    let (launch, secret) = (all.find("launch")?.handle, all.find("secret")?.handle);
    // Two names for one file, one of them hidden from the narrow lease.
    let key = all.find("secret/key")?.handle;
    all.link(&key, &launch, b"both")?;
    all.mkdir(&launch, b"part", mode(0o755))?;
    let narrow = narrowed(&nas, &wide, "/shared/launch/**")?;
    let mut work = nas.mount(&narrow, "/")?;
    let shared = work.find("shared")?.handle;
    let dir = work.find("shared/launch")?.handle;

    // Reading it is what the lease allows; a change would reach the hidden name.
    let both = work.find("shared/launch/both")?.handle;
    assert_eq!(work.read_all(&both)?, b"hidden\n");
    assert_eq!(refusal(work.write(&both, 0, b"x", stable_how::UNSTABLE)), Status::NFS3ERR_ACCES);
    assert_eq!(refusal(work.truncate(&both, 0)), Status::NFS3ERR_ACCES);
    assert_eq!(refusal(work.setattr(&both, mode(0o600), None)), Status::NFS3ERR_ACCES);
    assert_eq!(refusal(work.link(&both, &dir, b"third")), Status::NFS3ERR_ACCES);
    let cut = sattr3 { size: Nfs3Option::Some(0), ..mode(0o644) };
    assert_eq!(refusal(work.create(&dir, b"both", createhow3::UNCHECKED(cut))), Status::NFS3ERR_ACCES);
    assert_eq!(all.read_all(&key)?, b"hidden\n");
    // The name itself may go: the other one stays.
    work.remove(&dir, b"both")?;
    assert_eq!(all.read_file("secret/key")?, b"hidden\n");

    // Hidden ones are not there; visible ones outside the lease are refused.
    let listed = |client: &mut nas_nfsclient::Client, path: &str| client.list(path);
    assert_eq!(listed(&mut work, "")?, [b"shared"]);
    assert_eq!(listed(&mut work, "shared")?, [b"launch"]);
    for hidden in ["secret", "launch-evil", "nothing"] {
        let name = hidden.as_bytes();
        assert_eq!(refusal(work.lookup(&shared, name)), Status::NFS3ERR_NOENT, "{hidden}");
        assert_eq!(refusal(work.remove(&shared, name)), Status::NFS3ERR_NOENT, "{hidden}");
        assert_eq!(refusal(work.rmdir(&shared, name)), Status::NFS3ERR_NOENT, "{hidden}");
        assert_eq!(refusal(work.rename(&shared, name, &dir, b"in")), Status::NFS3ERR_NOENT, "{hidden}");
        // Whether the name is taken by something hidden cannot be told apart.
        assert_eq!(refusal(work.mkdir(&shared, name, mode(0o755))), Status::NFS3ERR_ACCES, "{hidden}");
        assert_eq!(refusal(work.create(&shared, name, unchecked())), Status::NFS3ERR_ACCES, "{hidden}");
        assert_eq!(refusal(work.symlink(&shared, name, b"x")), Status::NFS3ERR_ACCES, "{hidden}");
        assert_eq!(refusal(work.rename(&dir, b"notes.md", &shared, name)), Status::NFS3ERR_ACCES, "{hidden}");
        let notes = work.find("shared/launch/notes.md")?.handle;
        assert_eq!(refusal(work.link(&notes, &shared, name)), Status::NFS3ERR_ACCES, "{hidden}");
    }
    assert_eq!(refusal(work.rename(&shared, b"launch", &shared, b"lunch")), Status::NFS3ERR_ACCES);
    assert_eq!(refusal(work.rmdir(&work.root(), b"shared")), Status::NFS3ERR_ACCES);
    let attr = work.getattr(&shared)?;
    assert_eq!((attr.nlink, attr.size), (2, 4096), "they would tell how much is hidden");

    // A directory drawn out of sight by its owner takes its handles along; drawn back, they work again.
    let part = work.find("shared/launch/part")?.handle;
    work.create(&part, b"in", unchecked())?;
    all.rename(&launch, b"part", &secret, b"part")?;
    assert_eq!(refusal(work.getattr(&part)), Status::NFS3ERR_STALE);
    assert_eq!(refusal(work.lookup(&part, b"in")), Status::NFS3ERR_STALE);
    assert_eq!(refusal(work.create(&part, b"more", unchecked())), Status::NFS3ERR_STALE);
    all.rename(&secret, b"part", &launch, b"part")?;
    assert!(work.lookup(&part, b"in").is_ok());
    let recorded = wait_until(PATIENCE, || !refusals(&nas, "lease-path").is_empty());
    ensure!(recorded, "refusals are not in the records");
    sound(&mut nas)
}

/// Goal: after a kill, with every cache dropped and directories renamed meanwhile, old handles write to the same
/// files; unstable writes of before are known as lost by the verifier, and nothing stable is (hf-mount 177).
#[test]
fn old_handles_after_a_kill() -> Result<()> {
    let mut nas = start()?;
    let cleo = nas.full_lease("/shared/launch").map_err(refused)?;
    let mut work = nas.mount(&cleo, "/shared/launch")?;
    let root = work.root();
    let parent = work.make_dirs("a/b/c")?;
    let file = work.write_file("a/b/c/file", b"before ")?;
    let first = work.write(&file, 7, b"unstable", stable_how::UNSTABLE)?.verf.0;
    work.mkdir(&root, b"z", mode(0o755))?;
    let z = work.find("z")?.handle;
    work.rename(&root, b"a", &z, b"moved")?;
    work.rename(&parent, b"file", &z, b"renamed")?;
    nas.kill();
    if is_root() {
        std::fs::write("/proc/sys/vm/drop_caches", "3")?;
    }
    nas.boot()?;
    let mut work = work.reconnect()?;
    let second = work.write(&file, 7, b"after", stable_how::UNSTABLE)?.verf.0;
    assert_ne!(first, second, "a client would believe that what it wrote before is safe");
    assert_eq!(work.commit(&file)?, second);
    work.truncate(&file, 12)?;
    assert_eq!(work.read_file("z/renamed")?, b"before after");
    // The directory's old handle too.
    work.create(&parent, b"beside", unchecked())?;
    assert!(work.find("z/moved/b/c/beside").is_ok());
    assert_eq!(refusal(work.lookup(&root, b"a")), Status::NFS3ERR_NOENT);
    // A removed file stays removed.
    work.remove(&z, b"renamed")?;
    assert_eq!(refusal(work.write(&file, 0, b"x", stable_how::FILE_SYNC)), Status::NFS3ERR_STALE);
    nas.restart()?;
    assert_eq!(refusal(work.reconnect()?.read(&file, 0, 10)), Status::NFS3ERR_STALE);
    sound(&mut nas)
}

/// Goal: ten thousand refused calls are counted, not written one by one: nobody fills the ledger (DESIGN §4).
#[test]
fn a_flood_of_refusals() -> Result<()> {
    const FLOOD: usize = 10_000;
    let mut nas = start()?;
    let cleo = nas.full_lease("/shared/launch").map_err(refused)?;
    let mut work = nas.mount(&cleo, "/shared")?;
    let newest = |nas: &nas_e2e::TestBox| {
        let list = RecordList { limit: Some(1), ..RecordList::default() };
        nas.as_owner(&list).ok().and_then(|found| found.records.first().map(|record| record.seq)).unwrap_or(0)
    };
    let before = newest(&nas);
    let root = work.root();
    let forged = nas_nfsclient::client::handle_of(&[1; 53]);
    for number in 0..FLOOD / 2 {
        assert_eq!(refusal(work.mkdir(&root, format!("x{number}").as_bytes(), mode(0o755))), Status::NFS3ERR_ACCES);
        assert_eq!(refusal(work.getattr(&forged)), Status::NFS3ERR_BADHANDLE);
    }
    ensure!(wait_until(PATIENCE, || !refusals(&nas, "lease-path").is_empty()), "not recorded at all");
    let grown = newest(&nas) - before;
    ensure!(grown < 100, "{grown} records for {FLOOD} refusals");
    sound(&mut nas)
}
