//! The HTTP API: `POST /v1/<noun>/<verb>` with a JSON body, for every control verb (SPEC, HTTP API row).
//!
//! A projection of the Door: it reads a request, hands it over, and writes the answer. It decides nothing
//! about authority and keeps nothing between requests. Read in this order:
//! - [`routes`](ROUTES): the one table of verbs; each gets the same handler.
//! - `handler`: what happens to one request: who calls, reading the body, the bounded call of the Door.
//! - `workers`: who gets one: a cap for each run, a part that is the owner's.
//! - `metrics`: Prometheus text for the owner.
//! - `rate`: how many calls a run, the owner, an address without a token may make.
//! - `import`: the one verb with a streamed body: a line of JSON, then a tar stream as a blocking `Read`.
//! - `guard`: what is refused before a verb is looked at (foreign hosts and origins), and the log line.
//! - `error`: every failure as a status, a code and a sentence.
//! - `discovery`: the documents for who has only the address: OpenAPI, the catalog, `llms.txt`.
//! - `openapi`: how the OpenAPI document is made from the verbs; only the tests do, `openapi.json` is what is served.
//! - `connection`: sockets, limits and time-outs; [`serve`].
//!
//! Not here: TLS, the control room's pages, OAuth (they have their own issues).

mod body;
mod connection;
mod control;
mod discovery;
mod error;
mod guard;
mod handler;
mod import;
mod limits;
mod metrics;
#[cfg(test)]
mod openapi;
mod rate;
mod routes;
mod workers;

pub use connection::serve;
pub use limits::{Options, Rate};
pub use routes::{ROUTES, ROUTES_STREAMED};

#[cfg(test)]
mod tests;
