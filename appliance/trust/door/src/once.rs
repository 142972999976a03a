//! Idempotency keys: a call that is made again under its key is answered again and not done again.
//!
//! A marker is durable before the act, the answer after it. What is between them when the box stops is not known to anyone,
//! and is said to be so: it is never guessed and never done twice. A call that failed without doing anything leaves no
//! marker, so it can be made again under the same key.
//!
//! What is kept is hashed under a key that only the caller's token gives: a passphrase in a request cannot be guessed
//! from the ledger. Secrets of an answer are not kept at all; a repeated call gets the rest of it in an error.

use std::sync::atomic::Ordering;

use nas_ledger::{AnswerState, KeptAnswerRow, LedgerError};
use nas_trust_core::degradation::VerbClass;
use nas_types::time::Timestamp;
use nas_types::verb::{SECRET_ANSWERS, Verb};

use crate::inner::Inner;
use crate::{Caller, Door, DoorError, DoorVerb};

/// How long an answer is kept.
const ANSWERS_KEPT_MS: i64 = 24 * 3_600_000;
/// Answers kept for one token.
const ANSWERS_PER_TOKEN_MAX: u64 = 1000;
/// Largest answer that is kept, in bytes of JSON.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64;

/// A key with the token it came with. No `Debug`: one could guess from it.
pub struct Once {
    secret: [u8; 32],
    key: String,
}

impl Once {
    /// `key` is 1 to 64 printable ASCII characters without spaces.
    pub fn new(token: &str, key: &str) -> Result<Self, DoorError> {
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(DoorError::Invalid {
                field: "idempotency_key",
                reason: format!(
                    "1 to {KEY_BYTES_MAX} printable ASCII characters without spaces, a fresh UUID for example"
                ),
            });
        }
        Ok(Self {
            secret: blake3::derive_key("agent-nas 2026 idempotency keys", token.as_bytes()),
            key: key.to_owned(),
        })
    }

    fn hash(&self, what: &str, name: &str, bytes: &[u8]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(what.as_bytes()).update(&[0]).update(name.as_bytes()).update(&[0]).update(bytes);
        *hasher.finalize().as_bytes()
    }
}

/// An answer, and whether it was given before.
#[derive(Debug)]
pub struct Answered<A> {
    /// The answer.
    pub answer: A,
    /// It is that of an earlier call; nothing was done now.
    pub replayed: bool,
}

impl Door {
    /// As [`call`](Self::call), but what was done before under this key is only answered again.
    pub fn call_once<V: DoorVerb>(
        &self,
        caller: &Caller,
        verb: V,
        once: &Once,
    ) -> Result<Answered<V::Answer>, DoorError> {
        // An answer is nothing for a bearer whose lease is over.
        self.check_audience(caller, V::AUDIENCE, V::NAME)?;
        if !changes(V::CLASS) {
            return Err(DoorError::Invalid {
                field: "idempotency_key",
                reason: "this call changes nothing, so it can be repeated without a key: leave it out".to_owned(),
            });
        }
        let json = serde_json::to_vec(&verb).map_err(|source| failed("reading the request", source))?;
        let begun = KeptAnswerRow {
            id: once.hash("id", V::NAME, once.key.as_bytes()),
            holder: once.hash("holder", "", &[]),
            request: once.hash("request", V::NAME, &json),
            made_at: self.inner.clocks.wall(),
            state: AnswerState::Begun,
            answer: None,
        };
        let turn = Turn::take(&self.inner, begun.id)?;
        let oldest = self.inner.oldest_answer();
        let kept =
            self.inner.ledger.read(|reader| reader.get::<KeptAnswerRow>(&begun.id)).map_err(DoorError::Ledger)?;
        if let Some(kept) = kept.filter(|kept| kept.made_at >= oldest) {
            return replay::<V>(&kept, &begun.request);
        }
        let room = self.inner.ledger.write(|tx| {
            tx.forget_answers(oldest)?;
            let room = tx.answers_held(&begun.holder)? < ANSWERS_PER_TOKEN_MAX;
            if room {
                tx.put(&begun)?;
            }
            Ok::<_, LedgerError>(room)
        });
        if !room.map_err(DoorError::Ledger)? {
            return Err(DoorError::Key(
                "as many answers are kept for this token as there may be; make the call without a key, or wait: each is \
                 kept for 24 h",
            ));
        }
        let outcome = self.call(caller, verb);
        self.keep::<V>(begun, &outcome);
        drop(turn);
        outcome.map(|answer| Answered { answer, replayed: false })
    }

    /// Writes down what came of a call. When that fails the marker stays, and says that nobody knows.
    fn keep<V: Verb>(&self, mut row: KeptAnswerRow, outcome: &Result<V::Answer, DoorError>) {
        let written = match outcome {
            Ok(answer) => {
                row.state = AnswerState::Done;
                row.answer = without_secret::<V>(answer);
                self.inner.ledger.write(|tx| tx.update(&row))
            }
            // It may have happened in part.
            Err(DoorError::Ledger(_) | DoorError::Store { .. }) => return,
            Err(_) => self.inner.ledger.write(|tx| tx.delete::<KeptAnswerRow>(&row.id)),
        };
        if let Err(error) = written {
            tracing::warn!(%error, verb = V::NAME, "the answer of a call could not be kept under its idempotency key");
        }
    }
}

impl Inner {
    /// Forgets answers that were kept long enough.
    pub(crate) fn forget_answers(&self) -> Result<(), DoorError> {
        let oldest = self.oldest_answer();
        self.ledger.write(|tx| tx.forget_answers(oldest)).map(drop).map_err(DoorError::Ledger)
    }

    /// Answers to calls before this are forgotten; none while the clock is in doubt.
    fn oldest_answer(&self) -> Timestamp {
        let trusted = self.clock_trusted.load(Ordering::Acquire);
        Timestamp(if trusted { self.clocks.wall().0.saturating_sub(ANSWERS_KEPT_MS) } else { i64::MIN })
    }
}

/// Only what changes something is worth a key.
#[must_use]
pub const fn changes(class: VerbClass) -> bool {
    match class {
        VerbClass::Status | VerbClass::Read => false,
        VerbClass::OpenRun
        | VerbClass::Write
        | VerbClass::Approve
        | VerbClass::FreeSpace
        | VerbClass::Narrow
        | VerbClass::Recover => true,
    }
}

fn replay<V: Verb>(kept: &KeptAnswerRow, request: &[u8; 32]) -> Result<Answered<V::Answer>, DoorError> {
    if kept.request != *request {
        return Err(DoorError::Key("it was used for another request before: a new request needs a new key"));
    }
    if kept.state == AnswerState::Begun {
        return Err(DoorError::Key(
            "nobody knows what came of the call that was made under it: the box stopped or failed in its middle. Look \
             at what is there ('show' or 'list' of the same noun, 'nas record list'), then use a new key",
        ));
    }
    let Some(json) = &kept.answer else {
        return Err(DoorError::DoneBefore { answer: serde_json::Value::Null });
    };
    if secret_field(V::NAME).is_some() {
        let answer = serde_json::from_str(json).map_err(|source| failed("reading a kept answer", source))?;
        return Err(DoorError::DoneBefore { answer });
    }
    let answer = serde_json::from_str(json).map_err(|source| failed("reading a kept answer", source))?;
    Ok(Answered { answer, replayed: true })
}

fn secret_field(verb: &str) -> Option<&'static str> {
    SECRET_ANSWERS.iter().find(|(name, _)| *name == verb).map(|(_, field)| *field)
}

/// What of an answer is kept; `None` when it is too large.
fn without_secret<V: Verb>(answer: &V::Answer) -> Option<String> {
    let mut value = serde_json::to_value(answer).ok()?;
    if let (Some(field), Some(fields)) = (secret_field(V::NAME), value.as_object_mut()) {
        fields.remove(field);
    }
    Some(value.to_string()).filter(|json| json.len() <= ANSWER_BYTES_MAX)
}

fn failed(doing: &'static str, source: serde_json::Error) -> DoorError {
    DoorError::Store { doing, source: source.into() }
}

/// One call at a time under one key; never more entries than calls.
struct Turn<'a> {
    inner: &'a Inner,
    id: [u8; 32],
}

impl<'a> Turn<'a> {
    fn take(inner: &'a Inner, id: [u8; 32]) -> Result<Self, DoorError> {
        if inner.once.lock().insert(id) {
            Ok(Self { inner, id })
        } else {
            Err(DoorError::Busy { retry_after_seconds: 1 })
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.inner.once.lock().remove(&self.id);
    }
}
