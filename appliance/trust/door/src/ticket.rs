//! Mount tickets (DESIGN §5): single use, 60 s, kept in memory only. A restart voids them.

use std::collections::HashMap;

use nas_types::id::LeaseId;
use nas_types::lease::View;
use nas_types::object::Oid;
use nas_types::secret::Secret;

/// Life of a ticket.
pub(crate) const TICKET_MS: i64 = 60_000;
/// Unused tickets of one lease; more replace the oldest, so nobody fills the table.
const TICKETS_PER_LEASE_MAX: usize = 16;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket {
    pub(crate) lease: LeaseId,
    pub(crate) view: View,
    pub(crate) read_only: bool,
    pub(crate) commit: Option<Oid>,
    ends_boot_ms: i64,
}

/// The table is keyed by the ticket's hash: looking a ticket up compares hashes, so timing tells nothing about it.
#[derive(Debug, Default)]
pub(crate) struct Tickets(HashMap<[u8; 32], Ticket>);

impl Tickets {
    pub(crate) fn issue(
        &mut self,
        lease: LeaseId,
        view: View,
        read_only: bool,
        commit: Option<Oid>,
        boot_ms: i64,
    ) -> Secret {
        self.0.retain(|_, ticket| ticket.ends_boot_ms > boot_ms);
        let mine = self.0.values().filter(|ticket| ticket.lease == lease).count();
        if mine >= TICKETS_PER_LEASE_MAX {
            let oldest = self.0.iter().filter(|(_, t)| t.lease == lease).min_by_key(|(_, t)| t.ends_boot_ms);
            if let Some(key) = oldest.map(|(key, _)| *key) {
                self.0.remove(&key);
            }
        }
        let secret = Secret::random("tkt_");
        let ticket = Ticket { lease, view, read_only, commit, ends_boot_ms: boot_ms + TICKET_MS };
        self.0.insert(key(secret.reveal()), ticket);
        secret
    }

    /// Takes the ticket: a second use finds nothing.
    pub(crate) fn consume(&mut self, text: &str, boot_ms: i64) -> Option<Ticket> {
        self.0.remove(&key(text)).filter(|ticket| ticket.ends_boot_ms > boot_ms)
    }
}

fn key(text: &str) -> [u8; 32] {
    *blake3::hash(text.as_bytes()).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a ticket works once, not twice, not late; and one lease cannot fill the table.
    #[test]
    fn once_and_in_time() {
        let mut tickets = Tickets::default();
        let lease = LeaseId::random();
        let one = tickets.issue(lease, View::Branch, false, None, 0);
        assert_eq!(tickets.consume(one.reveal(), 1).map(|t| t.lease), Some(lease));
        assert!(tickets.consume(one.reveal(), 1).is_none());
        let late = tickets.issue(lease, View::Branch, false, None, 0);
        assert!(tickets.consume(late.reveal(), TICKET_MS).is_none());
        for _ in 0..100 {
            tickets.issue(lease, View::Main, true, None, 0);
        }
        assert_eq!(tickets.0.len(), TICKETS_PER_LEASE_MAX);
    }
}
