//! Mounts of a commit (DESIGN §3): one state that never changes, under a lease like any other.

use nas_e2e::{Leased, TestBox, refused};
use nas_nfsclient::{Client, Credential, Status};
use nas_testkit::Scratch;
use nas_types::lease::View;
use nas_types::verb::{BoxStatus, BranchCommit, LeaseRevoke, MountList, MountTicket};

fn ticket(commit: &str) -> MountTicket {
    MountTicket { view: View::Branch, read_only: false, commit: Some(commit.to_owned()) }
}

fn mount(nas: &TestBox, lease: &Leased, commit: &str, dir: &str) -> anyhow::Result<Client> {
    let answer = nas.call(Some(&lease.token), &ticket(commit)).map_err(refused)?;
    let export = format!("/{}{dir}", answer.ticket.reveal());
    Ok(Client::mount(nas.nfs(), &export, Credential::Sys { uid: 1000, gid: 1000 })?)
}

fn main_commit(nas: &TestBox) -> anyhow::Result<String> {
    let details = nas.as_owner(&BoxStatus {}).map_err(refused)?.details;
    Ok(details.map(|details| details.commit).unwrap_or_default())
}

/// Goal: a mount of an older commit shows it while main goes on and after `kill -9`, through the same handles; nothing can be
/// changed there; hidden paths stay hidden; it ends with its lease.
#[test]
fn one_state_while_main_goes_on() -> anyhow::Result<()> {
    let mut nas = TestBox::start()?;
    let source = Scratch::new("source");
    source.write("a/text", "first\n");
    source.write("b/hidden", "hidden\n");
    nas.import(source.path(), "/shared/x").map_err(refused)?;
    let first = main_commit(&nas)?;
    let run = nas.full_lease("/shared/x/a").map_err(refused)?;
    nas.mount(&run, "/shared/x/a")?.write_file("text", b"second\n")?;
    let card = nas.card(&nas.propose(&run).map_err(refused)?).map_err(refused)?;
    assert_eq!(nas.approve(&card).map_err(refused)?.state, "approved");
    assert_ne!(main_commit(&nas)?, first);

    // The first digits are enough.
    let mut then = mount(&nas, &run, &first[..10], "/shared/x")?;
    let text = then.find("a/text")?;
    assert_eq!(then.read_all(&text.handle)?, b"first\n");
    assert_eq!(then.list("")?, [b"a".to_vec()]);
    assert_eq!(then.find("b/hidden").map(|_| ()).unwrap_err().status(), Some(Status::NFS3ERR_NOENT));
    assert_eq!(then.write_file("a/new", b"new\n").map(|_| ()).unwrap_err().status(), Some(Status::NFS3ERR_ROFS));
    nas.kill();
    nas.boot()?;
    let mut then = then.reconnect()?;
    assert_eq!(then.read_all(&text.handle)?, b"first\n");
    assert_eq!(nas.mount_view(&run, "/shared/x/a", View::Main)?.read_file("text")?, b"second\n");
    let mounts = nas.as_owner(&MountList {}).map_err(refused)?.mounts;
    assert!(mounts.iter().any(|mount| mount.commit.is_some_and(|commit| commit.to_string() == first)));
    nas.as_owner(&LeaseRevoke { lease: run.info.lease, why: None }).map_err(refused)?;
    assert_eq!(then.read_all(&text.handle).map(|_| ()).unwrap_err().status(), Some(Status::NFS3ERR_STALE));
    Ok(())
}

/// Goal: a run reaches the commits of main and of its own branch, and those of no other run.
#[test]
fn no_commit_of_another_run() -> anyhow::Result<()> {
    let nas = TestBox::start()?;
    let (mine, other) = (nas.full_lease("/shared").map_err(refused)?, nas.full_lease("/shared").map_err(refused)?);
    nas.mount(&other, "/shared")?.write_file("secret", b"secret\n")?;
    nas.mount(&mine, "/shared")?.write_file("mine", b"mine\n")?;
    let commit = |lease: &Leased| {
        let committed = nas.call(Some(&lease.token), &BranchCommit { message: None }).map_err(refused)?;
        anyhow::Ok(committed.commit.to_string())
    };
    let (of_mine, of_other) = (commit(&mine)?, commit(&other)?);
    assert_eq!(mount(&nas, &mine, &of_mine, "/shared")?.read_file("mine")?, b"mine\n");
    assert_eq!(nas.call(Some(&mine.token), &ticket(&of_other)).map(|_| ()).unwrap_err().code, "not_found");
    assert_eq!(nas.call(Some(&mine.token), &ticket("0123456789")).map(|_| ()).unwrap_err().code, "not_found");
    assert_eq!(nas.call(Some(&mine.token), &ticket("xyz")).map(|_| ()).unwrap_err().code, "invalid");
    Ok(())
}
