//! L0.4: export then import gives a byte-identical tree and history.

use crate::report::{Miss, Verdict};
use crate::subject::Subject;

pub(crate) fn run(nas: &Subject) -> Verdict {
    nas.offers("tree/export")?;
    Err(Miss::Failed("the box has tree/export, and this version of the suite cannot compare what it gives".to_owned()))
}
