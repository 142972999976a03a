//! Every NFS procedure once, for tests that ask which of them are answered.

use anyhow::Result;
use nas_nfsclient::client::mode;
use nas_nfsclient::nfs3::*;
use nas_nfsclient::{Client, Error, Handle, Status};

/// What the procedures are tried on. Looked up while that is still allowed.
#[derive(Debug, Clone)]
pub struct Handles {
    root: Handle,
    file: Handle,
    link: Handle,
    dir: Handle,
}

/// How a procedure was answered.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// Its name.
    pub procedure: &'static str,
    /// It would change something.
    pub changes: bool,
    /// `NFS3_OK`, or the error.
    pub status: Status,
}

impl Handles {
    /// Makes `ops/` with what is needed below the mount's root.
    pub fn make(work: &mut Client) -> Result<()> {
        let root = work.make_dirs("ops")?;
        work.write_file("ops/file", b"content")?;
        work.symlink(&root, b"link", b"file")?;
        work.mkdir(&root, b"dir", mode(0o755))?;
        Ok(())
    }

    /// Finds what [`make`](Self::make) made.
    pub fn find(client: &mut Client) -> Result<Self> {
        let root = client.find("ops")?.handle;
        let mut child = |name: &[u8]| client.lookup(&root, name).map(|found| found.handle);
        Ok(Self { file: child(b"file")?, link: child(b"link")?, dir: child(b"dir")?, root })
    }
}

/// Calls every procedure that names a file. Those that change something come after those that do not.
pub fn every_procedure(client: &mut Client, on: &Handles) -> Result<Vec<Outcome>> {
    let Handles { root, file, link, dir } = on;
    let mut outcomes = reading(client, on)?;
    let mut changing = |procedure, done: nas_nfsclient::Result<()>| {
        outcomes.push(Outcome { procedure, changes: true, status: status(done)? });
        anyhow::Ok(())
    };
    changing("SETATTR", client.setattr(file, mode(0o600), None).map(drop))?;
    changing("WRITE", client.write(file, 0, b"changed", stable_how::FILE_SYNC).map(drop))?;
    changing("WRITE unstable", client.write(file, 0, b"changed", stable_how::UNSTABLE).map(drop))?;
    changing("CREATE", client.create(root, b"made", createhow3::UNCHECKED(mode(0o644))).map(drop))?;
    changing("CREATE exclusive", client.create(root, b"own", createhow3::EXCLUSIVE(createverf3([7; 8]))).map(drop))?;
    changing("CREATE over", client.create(root, b"file", createhow3::UNCHECKED(empty())).map(drop))?;
    changing("MKDIR", client.mkdir(root, b"made-dir", mode(0o755)).map(drop))?;
    changing("SYMLINK", client.symlink(root, b"made-link", b"file").map(drop))?;
    changing("MKNOD", client.mknod(root, b"made-fifo", mknoddata3::NF3FIFO(mode(0o644))).map(drop))?;
    changing("LINK", client.link(file, root, b"linked"))?;
    changing("RENAME", client.rename(root, b"link", dir, b"moved"))?;
    changing("REMOVE", client.remove(root, b"file"))?;
    changing("RMDIR", client.rmdir(root, b"dir"))?;
    let _ = link;
    Ok(outcomes)
}

fn reading(client: &mut Client, on: &Handles) -> Result<Vec<Outcome>> {
    let Handles { root, file, link, .. } = on;
    let mut outcomes = Vec::new();
    let mut reading = |procedure, done: nas_nfsclient::Result<()>| {
        outcomes.push(Outcome { procedure, changes: false, status: status(done)? });
        anyhow::Ok(())
    };
    reading("GETATTR", client.getattr(file).map(drop))?;
    reading("LOOKUP", client.lookup(root, b"file").map(drop))?;
    reading("ACCESS", client.access(file, ACCESS3_READ).map(drop))?;
    reading("READLINK", client.readlink(link).map(drop))?;
    reading("READ", client.read(file, 0, 100).map(drop))?;
    reading("READDIR", client.readdir(root, 0, 4096).map(drop))?;
    reading("READDIRPLUS", client.readdirplus(root, 0, 4096, 16384).map(drop))?;
    reading("FSSTAT", client.fsstat().map(drop))?;
    reading("FSINFO", client.fsinfo().map(drop))?;
    reading("PATHCONF", client.pathconf().map(drop))?;
    reading("COMMIT", client.commit(file).map(drop))?;
    Ok(outcomes)
}

fn empty() -> sattr3 {
    sattr3 { size: Nfs3Option::Some(0), ..mode(0o644) }
}

fn status(done: nas_nfsclient::Result<()>) -> Result<Status> {
    match done {
        Ok(()) => Ok(Status::NFS3_OK),
        Err(Error::Nfs(status)) => Ok(status),
        Err(error) => Err(error.into()),
    }
}
