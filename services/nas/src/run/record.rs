//! Records, and their verification against a head that was kept on this machine (SPEC REC-3).

use nas_types::verb::{Head, RecordAcceptLoss, RecordHead, RecordList, RecordVerified, RecordVerify};

use super::{As, Session, owner};
use crate::cli::RecordVerb;
use crate::failure::Failure;
use crate::text;

impl Session {
    pub(super) fn record(&self, verb: RecordVerb) -> Result<(), Failure> {
        match verb {
            RecordVerb::List { run, kind, page } => {
                self.simple(As::Owner, RecordList { run, kind, cursor: page.cursor, limit: page.limit })
            }
            RecordVerb::Head => {
                let head = self.call(As::Owner, &RecordHead {})?;
                self.state.saw_head(&head)?;
                self.print(&head)
            }
            RecordVerb::Verify { anchor } => {
                let anchor = match anchor {
                    Some(anchor) => Some(anchor),
                    None => self.state.head()?,
                };
                let answer = self.call(As::Owner, &RecordVerify { anchor: anchor.clone() })?;
                self.print(&answer)?;
                match broken(&answer, anchor.as_ref()) {
                    Some(why) => Err(Failure::Verification(why)),
                    None => self.state.saw_head(&answer.head),
                }
            }
            RecordVerb::AcceptLoss { why, passphrase } => {
                let request = RecordAcceptLoss { passphrase: owner::ask(&passphrase)?, why };
                let loss = self.call(As::Owner, &request)?;
                self.state.replace_head(&loss.record)?;
                self.print(&loss)
            }
        }
    }
}

/// What is wrong, if anything. What can be checked from here is not left to the box to say.
pub(crate) fn broken(answer: &RecordVerified, anchor: Option<&Head>) -> Option<String> {
    if !answer.ok {
        let because = answer.because.as_deref().unwrap_or("the box does not say why");
        return Some(text::visible(because));
    }
    let anchor = anchor?;
    if answer.head.seq < anchor.seq {
        return Some(format!(
            "the chain ends at record {}, but record {} was seen before: records were cut off",
            answer.head.seq, anchor.seq
        ));
    }
    if answer.head.seq == anchor.seq && !answer.head.hash.eq_ignore_ascii_case(&anchor.hash) {
        return Some(format!("record {} is not the one that was seen before", anchor.seq));
    }
    None
}
