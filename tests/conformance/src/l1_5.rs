//! L1.5: any commit can be explained to run, lease, read manifest (REC-2, REC-4, BRANCH-2).

use serde_json::{Value, json};

use crate::report::{Verdict, require};
use crate::subject::{Lease, Subject};

pub(crate) fn run(nas: &Subject) -> Verdict {
    let dir = nas.dir("l1_5");
    let imported = nas.import(&dir, &[("read.md", "read me\n"), ("edit.md", "old\n")])?;
    let lease = nas.run_in(&dir)?;
    let mut work = nas.mount(&lease, &dir, "branch")?;
    work.read_file("read.md")?;
    work.write_file("edit.md", b"new\n")?;
    let committed = nas.call("branch/commit", Some(&lease.token), &json!({}))?;
    let on_branch = nas.owner("explain/commit", &json!({ "commit": committed["commit"] }))?;
    explained(&on_branch, &lease, &dir, "a commit on the branch")?;

    let merged = nas.merge(&lease)?;
    let on_main = nas.owner("explain/commit", &json!({ "commit": merged }))?;
    explained(&on_main, &lease, &dir, "the merge")?;
    let decided = on_main["gate"]["decision"]["by"].is_string() && on_main["gate"]["digest"].is_string();
    require(decided, || "the merge explains its gate: digest and who decided (REC-4); it does not".to_owned())?;

    // Also what no agent made.
    let by_owner = nas.owner("explain/commit", &json!({ "commit": imported["commit"] }))?;
    require(by_owner["run"]["run"].is_string(), || "an import explains its run; it does not".to_owned())?;
    // And to a stranger nothing.
    let stranger = nas.lease(&["/shared/nothing-here/**"], &["read"], 600)?;
    let told = nas.call("explain/commit", Some(&stranger.token), &json!({ "commit": merged })).is_ok();
    require(!told, || "a commit of another run is not explained to a bearer; it is".to_owned())
}

fn explained(explanation: &Value, lease: &Lease, dir: &str, what: &str) -> Verdict {
    require(explanation["run"]["run"] == lease.run(), || format!("{what} explains its run; it does not"))?;
    require(explanation["lease"]["lease"] == lease.id(), || format!("{what} explains its lease; it does not"))?;
    let read = explanation["read"].as_array().map(Vec::as_slice).unwrap_or_default();
    let path = format!("{dir}/read.md");
    let named = read.iter().any(|line| line["path"] == path.as_str() && line["content"].is_string());
    require(named, || format!("{what} explains what was read, with its content hash; it does not"))
}
