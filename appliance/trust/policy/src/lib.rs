//! Policy: allow, gate or deny, with the id of the rule that decided and a sentence for people (SPEC LABEL-3, DESIGN §4).
//!
//! - [`request`]: what is asked ([`PolicyRequest`]), by whom, on what.
//! - [`builtin`]: the small rule set used until the owner's Cedar policies; [`Policy`] is the seam where they come in.
//!
//! Evaluation is deterministic, calls nothing, and has no error: what it cannot decide it denies. A gate is offered only when
//! the action would be allowed once approved ([`Policy::evaluate`]).
//!
//! Not here: whether a path is in a lease, time and budgets (`nas-trust-core`), who someone is (`nas-door`).

pub mod builtin;
pub mod request;

use std::borrow::Cow;
use std::fmt;

pub use builtin::BuiltIn;
pub use request::{Act, PolicyRequest, Subject, Taint, Target};

/// The rule that decided when none applied.
pub const DEFAULT_DENY: RuleId = RuleId(Cow::Borrowed("default-deny"));

/// Id of a rule: recorded with each decision and shown with each refusal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RuleId(pub Cow<'static, str>);

impl RuleId {
    /// A built-in rule.
    #[must_use]
    pub const fn builtin(id: &'static str) -> Self {
        Self(Cow::Borrowed(id))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What policy says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Do it.
    Allow,
    /// Ask a person first.
    Gate,
    /// Do not.
    Deny,
}

impl Effect {
    /// The word kept in records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Gate => "gate",
            Self::Deny => "deny",
        }
    }
}

/// A decision with its reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What to do.
    pub effect: Effect,
    /// Which rule decided.
    pub rule: RuleId,
    /// Why, as a sentence for people.
    pub reason: Cow<'static, str>,
}

/// A rule set.
pub trait Policy: Send + Sync {
    /// Applies the rules to a request exactly as it stands.
    fn rules(&self, request: &PolicyRequest<'_>) -> Decision;

    /// Decides. A gate is offered only when the same request, approved, would be allowed: nobody is asked in vain.
    fn evaluate(&self, request: &PolicyRequest<'_>) -> Decision {
        let decision = self.rules(request);
        if decision.effect != Effect::Gate {
            return decision;
        }
        if request.approved {
            // Asking again after an approval would loop.
            return Decision { effect: Effect::Deny, ..decision };
        }
        let approved = self.rules(&PolicyRequest { approved: true, ..*request });
        match approved.effect {
            Effect::Allow => decision,
            Effect::Gate | Effect::Deny => Decision { effect: Effect::Deny, ..approved },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rule set that asks for merges and, once approved, says `then`.
    struct Asks(Effect);
    impl Policy for Asks {
        fn rules(&self, request: &PolicyRequest<'_>) -> Decision {
            let (effect, rule) = if request.approved { (self.0, "then") } else { (Effect::Gate, "ask") };
            Decision { effect, rule: RuleId::builtin(rule), reason: Cow::Borrowed("test") }
        }
    }

    /// Goal: a gate that could not lead to an allow is a deny, and names the rule that would deny.
    #[test]
    fn no_gate_in_vain() {
        let request = PolicyRequest::new(Subject::agent("agent:cleo"), Act::Merge, Target::Protected);
        let offered = |then| Asks(then).evaluate(&request);
        assert_eq!(offered(Effect::Allow).effect, Effect::Gate);
        assert_eq!(
            (offered(Effect::Deny).effect, offered(Effect::Deny).rule.as_str().to_owned()),
            (Effect::Deny, "then".into())
        );
        assert_eq!(offered(Effect::Gate).effect, Effect::Deny);
        let approved = PolicyRequest { approved: true, ..request };
        assert_eq!(Asks(Effect::Gate).evaluate(&approved).effect, Effect::Deny);
    }
}
