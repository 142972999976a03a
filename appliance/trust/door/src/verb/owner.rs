//! `owner/…`: the owner's account.

use nas_ledger::{LedgerError, NewRecord, PrincipalKind, PrincipalRow, TokenKind, TokenRow};
use nas_trust_core::degradation::VerbClass;
use nas_types::secret::Secret;
use nas_types::verb::{Done, OwnerInit, OwnerLogin, OwnerLogout, OwnerToken};
use parking_lot::MutexGuard;

use crate::caller::Who;
use crate::{Caller, Door, DoorError, DoorVerb, passphrase};

/// The one owner; several people come with the control room.
pub(crate) const OWNER: &str = "human:owner";
/// Life of an owner token.
const OWNER_TOKEN_MS: i64 = 30 * 24 * 3_600_000;

impl DoorVerb for OwnerInit {
    const CLASS: VerbClass = VerbClass::Recover;

    fn run(self, door: &Door, _caller: &Caller) -> Result<OwnerToken, DoorError> {
        let given = *blake3::hash(self.bootstrap.reveal().as_bytes()).as_bytes();
        let wrong = || {
            DoorError::Unauthenticated(
                "the bootstrap token is not right, or was used. A new box has one in the file 'owner.bootstrap' of its data folder; where there is an owner already, sign in with 'nas owner login'"
                    .into(),
            )
        };
        let token = door.inner.ledger.read(|reader| reader.get::<TokenRow>(&given)).map_err(DoorError::Ledger)?;
        if token.is_none_or(|token| token.kind != TokenKind::Bootstrap || token.revoked_at.is_some()) {
            return Err(wrong());
        }
        let hash = passphrase::hash(&self.passphrase)?;
        let now = door.inner.clocks.wall();
        let (secret, row) = new_token(now);
        let used = door.inner.ledger.write_essential(|tx| {
            // Looked at again in the transaction: of two that come at once, one finds it used.
            let usable = tx.get::<TokenRow>(&given)?.is_some_and(|token| token.revoked_at.is_none());
            let owner = tx.get::<PrincipalRow>(&OWNER.to_owned())?;
            if !usable || owner.is_some_and(|owner| owner.passphrase_hash.is_some()) {
                return Ok(false);
            }
            // Also those that were offered earlier: a copy of one must not be worth anything from here on.
            for offered in tx.all::<TokenRow>()?.into_iter().filter(|token| token.kind == TokenKind::Bootstrap) {
                tx.update(&TokenRow { revoked_at: Some(now), ..offered })?;
            }
            tx.put(&PrincipalRow {
                id: OWNER.to_owned(),
                kind: PrincipalKind::Human,
                created_at: now,
                passphrase_hash: Some(hash.clone()),
                disabled_at: None,
            })?;
            tx.insert(&row)?;
            tx.append(&NewRecord { principal: Some(OWNER.to_owned()), ..NewRecord::event("owner.init", now) })?;
            Ok::<_, LedgerError>(true)
        });
        if !used.map_err(DoorError::Ledger)? {
            return Err(wrong());
        }
        door.forget_bootstrap_file();
        door.inner.push_anchor();
        Ok(secret)
    }
}

impl DoorVerb for OwnerLogin {
    const CLASS: VerbClass = VerbClass::Recover;

    fn run(self, door: &Door, _caller: &Caller) -> Result<OwnerToken, DoorError> {
        door.check_login(&self.passphrase)?;
        let now = door.inner.clocks.wall();
        let (secret, row) = new_token(now);
        let written = door.inner.ledger.write_essential(|tx| {
            tx.insert(&row)?;
            tx.append(&NewRecord { principal: Some(OWNER.to_owned()), ..NewRecord::event("owner.login", now) })
        });
        written.map_err(DoorError::Ledger)?;
        Ok(secret)
    }
}

impl DoorVerb for OwnerLogout {
    const CLASS: VerbClass = VerbClass::Narrow;

    fn run(self, door: &Door, caller: &Caller) -> Result<Done, DoorError> {
        let principal = caller.owner()?;
        let Who::Owner { token_hash, .. } = &caller.0 else { return Ok(Done { done: false }) };
        let now = door.inner.clocks.wall();
        let written = door.inner.ledger.write_essential(|tx| {
            let token = tx.need::<TokenRow>(token_hash)?;
            tx.update(&TokenRow { revoked_at: Some(now), ..token })?;
            tx.append(&NewRecord { principal: Some(principal.to_owned()), ..NewRecord::event("owner.logout", now) })
        });
        written.map_err(DoorError::Ledger)?;
        Ok(Done { done: true })
    }
}

fn new_token(now: nas_types::time::Timestamp) -> (OwnerToken, TokenRow) {
    let token = Secret::random("nas_owner_");
    let expires_at = now.plus_ms(OWNER_TOKEN_MS);
    let row = TokenRow {
        token_hash: *blake3::hash(token.reveal().as_bytes()).as_bytes(),
        kind: TokenKind::Owner,
        principal: OWNER.to_owned(),
        created_at: now,
        expires_at: Some(expires_at),
        revoked_at: None,
    };
    (OwnerToken { token, expires_at }, row)
}

impl Door {
    /// Asks the bearer of an owner token for the secret that is on no disk. Wrong tries are recorded and slowed down;
    /// decisions that come at once wait for one another.
    pub(crate) fn check_passphrase(&self, given: &Secret) -> Result<(), DoorError> {
        self.check_with(self.inner.passphrase.lock(), given)
    }

    /// The same at a sign-in, where anyone can try: with a guard of its own, so that a stranger's guesses never hold up a
    /// decision of the signed-in owner; and one at a time, so that they never hold up the other calls.
    fn check_login(&self, given: &Secret) -> Result<(), DoorError> {
        let guard = self.inner.login.try_lock().ok_or(DoorError::Busy { retry_after_seconds: 1 })?;
        self.check_with(guard, given)
    }

    fn check_with(&self, mut guard: MutexGuard<'_, passphrase::Guard>, given: &Secret) -> Result<(), DoorError> {
        let owner = self.inner.ledger.read(|reader| reader.get::<PrincipalRow>(&OWNER.to_owned()));
        let hash = owner.map_err(DoorError::Ledger)?.and_then(|owner| owner.passphrase_hash);
        let Some(hash) = hash else {
            return Err(DoorError::State(
                "there is no owner yet: run 'nas owner init' with the bootstrap token".to_owned(),
            ));
        };
        let checked = guard.check(&hash, given, self.inner.clocks.boottime_ms());
        if matches!(checked, Err(DoorError::WrongPassphrase)) {
            self.inner.refused_unauthenticated("http", "wrong-passphrase", "owner");
        }
        checked
    }
}
