//! L0.3: a file deleted in a protected tree can be restored from trash (BRANCH-4).

use nas_nfsclient::Status;
use serde_json::{Value, json};

use crate::report::{Miss, Verdict, require};
use crate::subject::Subject;

pub(crate) fn run(nas: &Subject) -> Verdict {
    nas.offers("trash/list")?;
    let dir = nas.dir("l0_3");
    nas.import(&dir, &[("gone.txt", "gone\n"), ("deep/a.txt", "a\n"), ("keep.txt", "keep\n")])?;
    let lease = nas.run_in(&dir)?;
    let mut work = nas.mount(&lease, &dir, "branch")?;
    work.remove_path("gone.txt")?;
    work.remove_path("deep/a.txt")?;
    work.rmdir_path("deep")?;
    let commit = nas.merge(&lease)?;
    let mut main = nas.mount(&lease, &dir, "main")?;
    let gone = main.find("gone.txt").err().and_then(|error| error.status());
    require(gone == Some(Status::NFS3ERR_NOENT), || format!("the merge deleted the file; it got {gone:?}"))?;

    let trash = nas.owner("trash/list", &json!({ "limit": 1000 }))?;
    let days = trash["days"].as_u64();
    require(days.is_some_and(|days| days > 0), || format!("the trash names its window in days; it says {days:?}"))?;
    let entries = trash["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
    for name in ["gone.txt", "deep/a.txt"] {
        let path = format!("{dir}/{name}");
        let listed = entries.iter().any(|entry| entry["path"] == path.as_str() && entry["commit"] == commit.as_str());
        require(listed, || format!("'{name}' is in the trash with the merge that deleted it; it is not"))?;
    }
    for name in ["gone.txt", "deep"] {
        restore(nas, &format!("{dir}/{name}"), &commit)?;
    }
    let back = (main.read_file("gone.txt")?, main.read_file("deep/a.txt")?);
    let same = back == (b"gone\n".to_vec(), b"a\n".to_vec());
    require(same, || "what is restored is byte for byte what was deleted; it differs".to_owned())?;
    // A run has no part in it.
    let asked = nas.call("trash/list", Some(&lease.token), &json!({}));
    require(asked.is_err(), || "the trash is the owner's; a run's lease lists it".to_owned())
}

fn restore(nas: &Subject, path: &str, commit: &str) -> Result<Value, Miss> {
    Ok(nas.decide("trash/restore", json!({ "path": path, "commit": commit }))?)
}
