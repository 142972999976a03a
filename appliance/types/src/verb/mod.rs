//! Control verbs. `nas lease create`, `POST /v1/lease/create`, [`LeaseCreate`] and the Door's
//! `lease_create` are one thing: the CLI and the HTTP API are projections of these structs.
//!
//! Who may call a verb is said by [`Audience`]; what it decides is the Door's business.

mod branch;
mod device;
mod explain;
mod gate;
mod lease;
mod mount;
mod owner;
mod record;
mod run;
mod standing;
mod trash;
mod tree;
mod trees;

pub use branch::*;
pub use device::*;
pub use explain::*;
pub use gate::*;
pub use lease::*;
pub use mount::*;
pub use owner::*;
pub use record::*;
pub use run::*;
pub use standing::*;
pub use trash::*;
pub use tree::*;
pub use trees::*;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Who may call a verb at all. The Door checks it before anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// Anyone who reaches the port: answers hold nothing worth protecting.
    Anyone,
    /// The bearer of a lease token.
    Lease,
    /// The bearer of an owner token.
    Owner,
    /// Either of the two.
    LeaseOrOwner,
}

/// A control verb: its name, who may call it, and the shape of its answer.
pub trait Verb: Serialize + DeserializeOwned + JsonSchema + Send + 'static {
    /// `noun/verb`: the path below `/v1/` and the two words after `nas`.
    const NAME: &'static str;
    /// Who may call it.
    const AUDIENCE: Audience;
    /// What it answers.
    type Answer: Serialize + DeserializeOwned + JsonSchema + Send + 'static;
}

macro_rules! verbs {
    ($($name:literal $audience:ident $request:ident => $answer:ident;)*) => {
        $(impl Verb for $request {
            const NAME: &'static str = $name;
            const AUDIENCE: Audience = Audience::$audience;
            type Answer = $answer;
        })*
        /// Every verb that is one JSON request and one JSON answer, with its audience. Those
        /// that stream a body are in [`STREAMED`].
        pub const VERBS: &[(&str, Audience)] = &[$(($name, Audience::$audience)),*];

        #[cfg(test)]
        fn answer_schemas() -> Vec<(&'static str, schemars::Schema)> {
            vec![$(($name, schemars::schema_for!($answer))),*]
        }
    };
}

/// Verbs whose request body is one line of JSON followed by a stream of bytes.
pub const STREAMED: &[(&str, Audience)] = &[("tree/import", Audience::Owner)];

/// Verbs whose answer holds a secret that is shown once, and the field it is in. A test compares this with the answers.
pub const SECRET_ANSWERS: &[(&str, &str)] = &[
    ("owner/init", "token"),
    ("owner/login", "token"),
    ("lease/create", "token"),
    ("standing/open", "token"),
    ("mount/ticket", "ticket"),
];

verbs! {
    "box/status"        Anyone       BoxStatus        => BoxStatusAnswer;
    "box/trust-clock"   Owner        BoxTrustClock    => BoxStatusAnswer;
    "box/resume"        Owner        BoxResume        => BoxStatusAnswer;
    "owner/init"        Anyone       OwnerInit        => OwnerToken;
    "owner/login"       Anyone       OwnerLogin       => OwnerToken;
    "owner/logout"      Owner        OwnerLogout      => Done;
    "tree/list"         LeaseOrOwner TreeList         => TreeListing;
    "tree/log"          LeaseOrOwner TreeLog          => TreeLogAnswer;
    "tree/create"       Owner        TreeCreate       => TreeInfo;
    "tree/show"         LeaseOrOwner TreeShow         => Trees;
    "tree/remove"       Owner        TreeRemove       => TreeInfo;
    "tree/restore"      Owner        TreeRestore      => TreeInfo;
    "lease/create"      LeaseOrOwner LeaseCreate      => LeaseCreated;
    "lease/list"        Owner        LeaseList        => Leases;
    "lease/show"        LeaseOrOwner LeaseShow        => LeaseInfo;
    "lease/revoke"      LeaseOrOwner LeaseRevoke      => LeaseRevoked;
    "run/list"          Owner        RunList          => Runs;
    "run/show"          LeaseOrOwner RunShow          => RunInfo;
    "run/end"           LeaseOrOwner RunEnd           => RunInfo;
    "standing/open"     Owner        StandingOpen     => StandingOpened;
    "standing/show"     Owner        StandingShow     => StandingInfo;
    "standing/close"    Owner        StandingClose    => StandingInfo;
    "mount/ticket"      Lease        MountTicket      => MountTicketAnswer;
    "mount/list"        LeaseOrOwner MountList        => Mounts;
    "branch/list"       LeaseOrOwner BranchList       => Branches;
    "branch/show"       LeaseOrOwner BranchShow       => BranchInfo;
    "branch/diff"       LeaseOrOwner BranchDiff       => BranchDiffAnswer;
    "branch/commit"     Lease        BranchCommit     => BranchCommitted;
    "branch/recycle"    LeaseOrOwner BranchRecycle    => BranchInfo;
    "branch/restore"    Lease        BranchRestore    => BranchRestored;
    "checkpoint/create" Lease        CheckpointCreate => CheckpointInfo;
    "checkpoint/list"   LeaseOrOwner CheckpointList   => Checkpoints;
    "trash/list"        Owner        TrashList        => Trash;
    "trash/restore"     Owner        TrashRestore     => TrashRestored;
    "gate/propose"      Lease        Propose          => Proposed;
    "gate/list"         LeaseOrOwner GateList         => Gates;
    "gate/show"         LeaseOrOwner GateShow         => GateCard;
    "gate/approve"      Owner        GateApprove      => GateDecided;
    "gate/deny"         Owner        GateDeny         => GateDecided;
    "explain/commit"    LeaseOrOwner ExplainCommit    => Explanation;
    "record/list"       Owner        RecordList       => Records;
    "record/head"       LeaseOrOwner RecordHead       => Head;
    "record/verify"     Owner        RecordVerify     => RecordVerified;
    "record/accept-loss" Owner       RecordAcceptLoss => LossAccepted;
}

/// The verb did what it says; there is nothing more to tell.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Done {
    /// Always true: a verb that fails answers an error instead.
    pub done: bool,
}

/// Error body of every interface that speaks JSON: `{"error": {…}}` (SPEC, HTTP API row).
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorInfo,
}

/// One error, for programs and for people.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct ErrorInfo {
    /// Stable word for programs.
    pub code: String,
    /// What happened, to what, and what to do next.
    pub message: String,
    /// The same call can succeed later without a change.
    pub retryable: bool,
    /// For the person who looks into the log.
    pub request_id: String,
    /// Facts beside the message; a null when there are none.
    #[serde(default)]
    pub details: serde_json::Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an answer with a secret that is not listed would be kept in plain under an idempotency key.
    #[test]
    fn secrets_of_answers_are_listed() {
        for (name, schema) in answer_schemas() {
            let mut schema = schema.to_value();
            let holds = |schema: &serde_json::Value| schema.to_string().contains("#/$defs/Secret");
            let listed = SECRET_ANSWERS.iter().find(|listed| listed.0 == name);
            assert_eq!(holds(&schema), listed.is_some(), "{name}");
            if let Some((_, field)) = listed {
                assert!(
                    schema["properties"].as_object_mut().unwrap().remove(*field).is_some(),
                    "{name} has no {field}"
                );
                assert!(!holds(&schema), "{name} holds a second secret");
            }
        }
    }
}
