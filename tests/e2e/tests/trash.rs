//! What a merge deleted comes back (SPEC BRANCH-4, L0.3).

use nas_e2e::{TestBox, passphrase, path, refused};
use nas_nfsclient::Status;
use nas_testkit::Scratch;
use nas_types::lease::View;
use nas_types::verb::{ExplainCommit, TrashList, TrashRestore};

/// Goal: a file and a directory that a merge deleted are listed, come back exactly, as a commit of their own, and nothing
/// that main has meanwhile is replaced.
#[test]
fn deleted_and_back() -> anyhow::Result<()> {
    let nas = TestBox::start()?;
    let source = Scratch::new("source");
    source.write("keep.txt", "kept\n");
    source.write("gone.txt", "gone\n");
    source.write("dir/deep/a.txt", "a\n");
    source.write("dir/b.txt", "b\n");
    nas.import(source.path(), "/shared/p").map_err(refused)?;
    let cleo = nas.full_lease("/shared/p").map_err(refused)?;
    let mut work = nas.mount(&cleo, "/shared/p")?;
    work.remove_path("gone.txt")?;
    work.remove_path("dir/deep/a.txt")?;
    work.remove_path("dir/b.txt")?;
    work.rmdir_path("dir/deep")?;
    work.rmdir_path("dir")?;
    let card = nas.card(&nas.propose(&cleo).map_err(refused)?).map_err(refused)?;
    let commit = nas.approve(&card).map_err(refused)?.commit.ok_or_else(|| anyhow::anyhow!("not merged"))?;
    let mut main = nas.mount_view(&cleo, "/shared/p", View::Main)?;
    assert_eq!(main.find("gone.txt").unwrap_err().status(), Some(Status::NFS3ERR_NOENT));

    let trash = nas.as_owner(&TrashList::default()).map_err(refused)?;
    assert_eq!(trash.days, 7);
    let listed: Vec<_> = trash.entries.iter().map(|entry| entry.path.to_string()).collect();
    for gone in ["/shared/p/gone.txt", "/shared/p/dir/deep/a.txt", "/shared/p/dir/b.txt"] {
        assert!(listed.contains(&gone.to_owned()), "{gone} is not in {listed:?}");
    }
    assert!(trash.entries.iter().all(|entry| entry.commit == commit && entry.run == Some(cleo.info.run)));

    let restore =
        |what: &str| nas.as_owner(&TrashRestore { path: path(what), commit: commit.short(), passphrase: passphrase() });
    let back = restore("/shared/p/dir").map_err(refused)?;
    assert_eq!(main.read_file("dir/deep/a.txt")?, b"a\n");
    assert_eq!(main.read_file("dir/b.txt")?, b"b\n");
    assert_eq!(main.find("gone.txt").unwrap_err().status(), Some(Status::NFS3ERR_NOENT));
    let explained = nas.as_owner(&ExplainCommit { commit: back.commit.short() }).map_err(refused)?;
    assert_eq!(explained.run.map(|run| run.principal), Some("human:owner".to_owned()));

    // What is there now is never replaced, and what was never deleted is not in the trash.
    nas.import(Scratch::new("other").write("gone.txt", "new\n").parent().unwrap(), "/shared/p").map_err(refused)?;
    assert_eq!(restore("/shared/p/gone.txt").unwrap_err().code, "state");
    assert_eq!(restore("/shared/p/keep.txt").unwrap_err().code, "not_found");
    assert_eq!(main.read_file("gone.txt")?, b"new\n");
    // A lease has no part in this.
    assert_eq!(nas.call(Some(&cleo.token), &TrashList::default()).unwrap_err().code, "denied");
    Ok(())
}
