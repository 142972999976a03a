//! Times that programs set, from a client or an archive to main and to the next fork of it.

use nas_e2e::{TestBox, refused};
use nas_nfsclient::Client;
use nas_nfsclient::nfs3::*;
use nas_types::lease::View;

const IMPORTED: nfstime3 = nfstime3 { seconds: 1_234_567_890, nseconds: 987_654_321 };
const SET: nfstime3 = nfstime3 { seconds: 981_173_106, nseconds: 123_456_789 };

fn mtime(client: &mut Client, path: &str) -> anyhow::Result<(u32, u32)> {
    let file = client.find(path)?.handle;
    let time = client.getattr(&file)?.mtime;
    Ok((time.seconds, time.nseconds))
}

fn touch(client: &mut Client, path: &str, time: nfstime3) -> anyhow::Result<()> {
    let file = client.find(path)?.handle;
    let new = sattr3 { mtime: set_mtime::SET_TO_CLIENT_TIME(time), ..sattr3::default() };
    client.setattr(&file, new, None)?;
    Ok(())
}

/// An archive of `bytes` for each name, with times to the nanosecond.
fn archive(names: &[&str], bytes: &[u8], time: nfstime3) -> anyhow::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for name in names {
        let text = format!("{}.{:09}", time.seconds, time.nseconds);
        archive.append_pax_extensions([("mtime", text.as_bytes())])?;
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_size(bytes.len() as u64);
        header.set_mtime(5);
        archive.append_data(&mut header, name, bytes)?;
    }
    Ok(archive.into_inner()?)
}

/// Goal: main shows the time that a client set on what it wrote, and that of an archive on what came from it; so does the
/// next branch. A touch alone proposes nothing, and what is merged beside it leaves main's time alone.
#[test]
fn from_client_to_main() -> anyhow::Result<()> {
    let nas = TestBox::start()?;
    nas.import_tar(&archive(&["kept", "touched"], b"text\n", IMPORTED)?, "/shared/p").map_err(refused)?;
    let cleo = nas.full_lease("/shared/p").map_err(refused)?;
    let mut work = nas.mount(&cleo, "/shared/p")?;
    let imported = (IMPORTED.seconds, IMPORTED.nseconds);
    assert_eq!(mtime(&mut work, "kept")?, imported);

    touch(&mut work, "touched", SET)?;
    assert_eq!(nas.propose(&cleo).unwrap_err().code, "state", "a touch is no change to propose");
    work.write_file("written", b"by cleo\n")?;
    touch(&mut work, "written", SET)?;
    let card = nas.card(&nas.propose(&cleo).map_err(refused)?).map_err(refused)?;
    assert_eq!(card.changes.len(), 1, "{:?}", card.changes);
    // Main moves beside it: the card still stands, times and all.
    nas.import_tar(&archive(&["beside"], b"more\n", IMPORTED)?, "/shared/p").map_err(refused)?;
    assert!(nas.approve(&card).map_err(refused)?.commit.is_some());

    let mut main = nas.mount_view(&cleo, "/shared/p", View::Main)?;
    let next = nas.full_lease("/shared/p").map_err(refused)?;
    let mut fork = nas.mount(&next, "/shared/p")?;
    for seen in [&mut main, &mut fork] {
        assert_eq!(mtime(seen, "written")?, (SET.seconds, SET.nseconds));
        for name in ["kept", "touched", "beside"] {
            assert_eq!(mtime(seen, name)?, imported, "{name}");
        }
    }
    Ok(())
}
