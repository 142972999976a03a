//! Leases: their tokens are stored, and handed out where asked for.

use nas_types::verb::{LeaseCreate, LeaseList, LeaseRevoke, LeaseShow, StandingClose, StandingOpen, StandingShow};

use super::{As, Session, owner, owner_if};
use crate::cli::{LeaseCreateArgs, LeaseVerb, StandingVerb};
use crate::failure::Failure;
use crate::state::write_token_out;
use crate::text;

impl Session {
    pub(super) fn lease(&self, verb: LeaseVerb) -> Result<(), Failure> {
        match verb {
            LeaseVerb::Create(args) => self.lease_create(args),
            LeaseVerb::List { all, page } => {
                self.simple(As::Owner, LeaseList { all, cursor: page.cursor, limit: page.limit })
            }
            LeaseVerb::Show { id } => self.simple(owner_if(id.is_some()), LeaseShow { lease: id }),
            LeaseVerb::Revoke { id, why } => {
                let answer = self.call(As::Owner, &LeaseRevoke { lease: id, why })?;
                for lease in &answer.revoked {
                    self.state.forget_lease(*lease)?;
                }
                self.print(&answer)
            }
        }
    }

    pub(super) fn standing(&self, verb: StandingVerb) -> Result<(), Failure> {
        match verb {
            StandingVerb::Open { paths, passphrase } => {
                let verb = StandingOpen { paths, passphrase: owner::ask(&passphrase)? };
                let answer = self.call(As::Owner, &verb)?;
                self.state.add_lease(answer.lease.lease, &answer.token)?;
                self.print(&answer)
            }
            StandingVerb::Show => self.simple(As::Owner, StandingShow {}),
            StandingVerb::Close(passphrase) => {
                self.simple(As::Owner, StandingClose { passphrase: owner::ask(&passphrase)? })
            }
        }
    }

    fn lease_create(&self, args: LeaseCreateArgs) -> Result<(), Failure> {
        if let Some(file) = args.token_out.as_ref().filter(|f| f.exists()) {
            return Err(Failure::Usage(format!("{} exists; --token-out writes a new file", file.display())));
        }
        let verb = LeaseCreate {
            role: args.role,
            tree: args.tree,
            paths: args.paths,
            actions: args.actions,
            ttl_seconds: args.ttl,
            purpose: args.purpose,
            quota_bytes: args.quota,
        };
        let answer = self.call(As::Owner, &verb)?;
        self.state.add_lease(answer.lease.lease, &answer.token)?;
        if let Some(file) = &args.token_out {
            write_token_out(file, &answer.token)?;
        }
        self.print(&answer)?;
        if args.print_token && !self.global.json {
            text::print(&format!("{}\n", text::visible(answer.token.reveal())));
        }
        Ok(())
    }
}
