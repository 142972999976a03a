//! Verbs of the owner's account.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::secret::Secret;
use crate::time::Timestamp;

/// Consumes the one-time bootstrap token and sets the owner's passphrase.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OwnerInit {
    /// Content of `owner.bootstrap`.
    pub bootstrap: Secret,
    /// The passphrase to set, 12 to 1024 bytes.
    pub passphrase: Secret,
}

/// Asks for a fresh owner token.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OwnerLogin {
    /// The owner's passphrase.
    pub passphrase: Secret,
}

/// Ends the token that is used for this call.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OwnerLogout {}

/// A token for the owner's calls. It lets one look and issue leases; decisions need the passphrase each time.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct OwnerToken {
    /// Shown once; only its hash is kept.
    pub token: Secret,
    /// When it stops working.
    pub expires_at: Timestamp,
}
