//! What is on the wire, without any decision: XDR, record marks, RPC headers, arguments, statuses and attributes.

pub(crate) mod args;
pub(crate) mod attr;
#[cfg(test)]
mod oracle;
pub(crate) mod record;
pub(crate) mod rpc;
pub(crate) mod status;
pub(crate) mod xdr;
