//! The call itself: one POST, one answer.

use std::io::{ErrorKind, Read};
use std::time::Duration;

use nas_types::secret::Secret;
use nas_types::verb::{ErrorBody, Verb};
use serde::de::DeserializeOwned;
use ureq::http::{Response, StatusCode};
use ureq::{Agent, Body, SendBody};

use crate::failure::Failure;

/// Time to get a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// Time for an answer to begin: a merge of many files is allowed to take a while.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(600);
/// Largest answer that is read: a Gate Card holds a whole diff.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// A box.
#[derive(Debug)]
pub(crate) struct Client {
    agent: Agent,
    url: String,
}

impl Client {
    /// For the box at `url`.
    pub(crate) fn new(url: &str) -> Result<Self, Failure> {
        host_of(url)?;
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            // A token must go to the box and nowhere else.
            .proxy(None)
            .timeout_connect(Some(CONNECT_TIME_MAX))
            .timeout_recv_response(Some(ANSWER_TIME_MAX))
            .build()
            .new_agent();
        Ok(Self { agent, url: url.trim_end_matches('/').to_owned() })
    }

    /// Its address.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// One verb.
    pub(crate) fn call<V: Verb>(&self, token: Option<&Secret>, verb: &V) -> Result<V::Answer, Failure> {
        let body = serde_json::to_vec(verb).map_err(|e| Failure::Local(format!("cannot write the request: {e}")))?;
        let sent = self.post(V::NAME, token, "application/json").send(&body[..]);
        self.answer(sent.map_err(|e| self.unreachable(&e))?)
    }

    /// A verb with a streamed body. A reader that fails breaks the connection off, so that the box never takes
    /// the part for the whole.
    pub(crate) fn stream<A: DeserializeOwned>(
        &self,
        name: &str,
        token: Option<&Secret>,
        body: &mut dyn Read,
    ) -> Result<A, Failure> {
        let mut body = body;
        let sent = self.post(name, token, "application/octet-stream").send(SendBody::from_reader(&mut body));
        self.answer(sent.map_err(|error| match &error {
            ureq::Error::Io(io) if matches!(io.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                Failure::Broken { url: self.url.clone(), why: io.to_string() }
            }
            _ => self.unreachable(&error),
        })?)
    }

    fn post(&self, name: &str, token: Option<&Secret>, kind: &str) -> ureq::RequestBuilder<ureq::typestate::WithBody> {
        let request = self.agent.post(format!("{}/v1/{name}", self.url)).header("content-type", kind);
        match token {
            Some(token) => request.header("authorization", format!("Bearer {}", token.reveal())),
            None => request,
        }
    }

    fn answer<A: DeserializeOwned>(&self, mut response: Response<Body>) -> Result<A, Failure> {
        let status = response.status();
        let bytes = response
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES_MAX)
            .read_to_vec()
            .map_err(|e| self.unreachable(&e))?;
        if status == StatusCode::OK {
            return serde_json::from_slice(&bytes).map_err(|e| {
                Failure::Local(format!(
                    "the answer of {} is not understood ({e}); is it an Agent NAS of this version?",
                    self.url
                ))
            });
        }
        match serde_json::from_slice::<ErrorBody>(&bytes) {
            Ok(body) => Err(Failure::Refused(Box::new(body.error))),
            Err(_) => Err(Failure::Local(format!(
                "{} answered {status} without an explanation; is it an Agent NAS?",
                self.url
            ))),
        }
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        Failure::Unreachable { url: self.url.clone(), why: error.to_string() }
    }
}

/// The host in `http://host[:port]`, with the brackets of an IPv6 address.
pub(crate) fn host_of(url: &str) -> Result<&str, Failure> {
    let wrong = || Failure::Usage("the address of a box is http://HOST or http://HOST:PORT".to_owned());
    let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.is_empty() || authority.contains(['/', '?', '#', '@', ' ']) {
        return Err(wrong());
    }
    if authority.starts_with('[') {
        return authority.find(']').map(|end| &authority[..=end]).ok_or_else(wrong);
    }
    match authority.split(':').next() {
        Some(host) if !host.is_empty() => Ok(host),
        _ => Err(wrong()),
    }
}
