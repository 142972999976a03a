//! L0.2: a direct write to a protected tree is refused, even with valid credentials (BRANCH-1).

use nas_nfsclient::Status;
use nas_nfsclient::nfs3::{createhow3, stable_how};
use serde_json::json;

use crate::report::{Verdict, require};
use crate::subject::{ALL, Subject};

pub(crate) fn run(nas: &Subject) -> Verdict {
    let dir = nas.dir("l0_2");
    nas.import(&dir, &[("file", "content\n")])?;
    // A narrow lease and the widest that there is.
    for lease in [nas.run_in(&dir)?, nas.lease(&["/**"], &ALL, 600)?] {
        let mut main = nas.mount(&lease, &dir, "main")?;
        let (root, file) = (main.root(), main.find("file")?.handle);
        let how = createhow3::UNCHECKED(nas_nfsclient::client::mode(0o644));
        let outcomes = [
            ("WRITE", main.write(&file, 0, b"direct\n", stable_how::FILE_SYNC).map(drop)),
            ("SETATTR", main.truncate(&file, 0)),
            ("CREATE", main.create(&root, b"new", how).map(drop)),
            ("MKDIR", main.mkdir(&root, b"dir", nas_nfsclient::client::mode(0o755)).map(drop)),
            ("SYMLINK", main.symlink(&root, b"link", b"file").map(drop)),
            ("LINK", main.link(&file, &root, b"hard")),
            ("RENAME", main.rename(&root, b"file", &root, b"moved")),
            ("REMOVE", main.remove(&root, b"file")),
        ];
        for (procedure, outcome) in outcomes {
            let status = outcome.err().and_then(|error| error.status());
            let refused = matches!(status, Some(Status::NFS3ERR_ROFS | Status::NFS3ERR_ACCES | Status::NFS3ERR_PERM));
            require(refused, || format!("{procedure} on main is refused (ROFS, ACCES or PERM); it got {status:?}"))?;
        }
        let content = main.read_file("file")?;
        require(content == b"content\n" && main.list("")?.len() == 1, || "main is as it was; it is not".to_owned())?;
    }
    // A merge is the only way, and only into main; the owner's token alone is no way either.
    let lease = nas.run_in(&dir)?;
    nas.mount(&lease, &dir, "branch")?.write_file("file", b"changed\n")?;
    let elsewhere = nas.call("gate/propose", Some(&lease.token), &json!({ "into": "../main" }));
    require(elsewhere.is_err(), || "a proposal into '../main' is refused; it was accepted".to_owned())?;
    let mount = nas.owner("mount/ticket", &json!({ "view": "main", "read_only": false }));
    require(mount.is_err(), || "the owner's token opens no mount; it got a ticket".to_owned())
}
