//! Gates: asking, looking, deciding.

use nas_types::id::GateId;
use nas_types::verb::{GateApprove, GateCard, GateDecided, GateDeny, GateList, GateShow, Propose};

use super::{As, Session, owner};
use crate::card;
use crate::cli::GateVerb;
use crate::failure::Failure;

impl Session {
    pub(super) fn gate(&self, verb: GateVerb) -> Result<(), Failure> {
        match verb {
            GateVerb::Propose(args) => self.simple(As::Lease, Propose { into: args.into, why: args.why }),
            GateVerb::List { all, page } => {
                self.simple(As::Owner, GateList { all, cursor: page.cursor, limit: page.limit })
            }
            GateVerb::Show { gate } => {
                let card = self.card(gate)?;
                self.print(&card)
            }
            GateVerb::Approve { gate, digest, reason, passphrase } => {
                // The digest that is sent is the one of the card on the screen, never one fetched after it.
                let digest = match digest {
                    Some(digest) => digest,
                    None => {
                        let card = self.card(gate)?;
                        eprint!("{}", card::summary(&card, &self.here));
                        eprintln!("(the whole diff: nas gate show {gate})");
                        card.action.digest
                    }
                };
                let passphrase = owner::ask(&passphrase)?;
                self.decided(self.call(As::Owner, &GateApprove { gate, digest, passphrase, reason })?)
            }
            GateVerb::Deny { gate, reason, passphrase } => {
                let passphrase = owner::ask(&passphrase)?;
                self.decided(self.call(As::Owner, &GateDeny { gate, passphrase, reason })?)
            }
        }
    }

    fn card(&self, gate: GateId) -> Result<GateCard, Failure> {
        let card = self.call(As::Owner, &GateShow { gate })?;
        self.state.saw_head(&card.head)?;
        Ok(card)
    }

    fn decided(&self, decided: GateDecided) -> Result<(), Failure> {
        self.print(&decided)?;
        if decided.state == "void" { Err(Failure::Void(Box::new(decided))) } else { Ok(()) }
    }
}
