//! The way back of a reply.

use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc;

/// A finished reply with the part of the budget that its request holds.
#[derive(Debug)]
pub(crate) struct Reply {
    /// Record mark and message.
    pub(crate) bytes: Vec<u8>,
    /// Given back when the bytes are in the socket.
    pub(crate) _budget: OwnedSemaphorePermit,
}

/// Where the reply to one request goes. Dropped unused, the client gets no answer and its budget comes back.
#[derive(Debug)]
pub(crate) struct ReplyTo {
    pub(crate) replies: mpsc::Sender<Reply>,
    pub(crate) budget: OwnedSemaphorePermit,
}

impl ReplyTo {
    /// Sends `bytes`. Does not block: the budget bounds the replies on their way below what the channel holds.
    pub(crate) fn send(self, bytes: Vec<u8>) {
        match self.replies.try_send(Reply { bytes, _budget: self.budget }) {
            // Closed: the connection is gone, nobody waits.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
            Err(mpsc::error::TrySendError::Full(_)) => {
                tracing::error!("a reply was dropped: more replies than requests may be in flight");
            }
        }
    }
}
