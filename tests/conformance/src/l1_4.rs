//! L1.4: no lease can delete a snapshot (BRANCH-3).

use crate::report::{Miss, Verdict};
use crate::subject::Subject;

pub(crate) fn run(nas: &Subject) -> Verdict {
    nas.offers("snapshot/list")?;
    Err(Miss::Failed("the box has snapshot/list, and this version of the suite cannot attack it".to_owned()))
}
