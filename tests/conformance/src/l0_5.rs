//! L0.5: at least two standard views: the mount and Git, or one of them and S3.

use crate::report::{Miss, Verdict, require};
use crate::subject::Subject;

/// Where a Git client asks first. What is there answers 200 or asks for credentials.
const GIT: &str = "/git/nas/info/refs?service=git-upload-pack";

pub(crate) fn run(nas: &Subject) -> Verdict {
    let dir = nas.dir("l0_5");
    nas.import(&dir, &[("file", "content\n")])?;
    let content = nas.mount(&nas.run_in(&dir)?, &dir, "main")?.read_file("file")?;
    require(content == b"content\n", || "the mount shows main; it does not".to_owned())?;
    let catalog = nas.get("/.well-known/ai-catalog.json").map_err(Miss::Failed)?.1;
    let git = nas.get(GIT).map_err(Miss::Failed)?.0;
    if matches!(git, 200 | 401) || catalog.contains("application/x-git") || catalog.contains("urn:air:s3") {
        return Err(Miss::Failed("the box has a second view, and this version of the suite cannot read it".to_owned()));
    }
    Err(Miss::NotImplemented("the mount is the only view: neither Git nor S3 is offered".to_owned()))
}
