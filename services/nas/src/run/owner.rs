//! The owner's passphrase and token.

use nas_types::secret::Secret;
use nas_types::verb::{OwnerInit, OwnerLogin, OwnerLogout, OwnerToken};

use super::{As, Session};
use crate::cli::{OwnerVerb, PassphraseArgs};
use crate::failure::Failure;
use crate::state::read_secret;
use crate::{passphrase, text};

/// The owner's passphrase.
pub(super) fn ask(args: &PassphraseArgs) -> Result<Secret, Failure> {
    passphrase::ask(args.passphrase_file.as_deref())
}

impl Session {
    pub(super) fn owner(&self, verb: OwnerVerb) -> Result<(), Failure> {
        match verb {
            OwnerVerb::Init { bootstrap_file, passphrase, print_token } => {
                let bootstrap = match bootstrap_file {
                    Some(file) => read_secret(&file)?,
                    None => passphrase::prompt("Content of the box's owner.bootstrap: ")?,
                };
                let passphrase = passphrase::ask_new(passphrase.passphrase_file.as_deref())?;
                let answer = self.call(As::Nobody, &OwnerInit { bootstrap, passphrase })?;
                self.keep_owner(&answer, print_token)
            }
            OwnerVerb::Login { passphrase, print_token } => {
                let answer = self.call(As::Nobody, &OwnerLogin { passphrase: ask(&passphrase)? })?;
                self.keep_owner(&answer, print_token)
            }
            OwnerVerb::Logout => {
                let answer = self.call(As::Owner, &OwnerLogout {})?;
                self.state.forget_owner_token()?;
                self.print(&answer)
            }
        }
    }

    fn keep_owner(&self, answer: &OwnerToken, print_token: bool) -> Result<(), Failure> {
        self.state.set_owner_token(&answer.token)?;
        self.print(answer)?;
        if print_token && !self.global.json {
            text::print(&format!("{}\n", text::visible(answer.token.reveal())));
        }
        Ok(())
    }
}
