//! `GET /metrics`: how the box is and what was asked of it, as Prometheus text (SPEC OPS-3), for the owner's token alone.
//!
//! What is counted here is counted from the start of nasd, and labelled only with verbs and classes of answers: the number of
//! series does not grow with what callers send. The rest is what `box/status` says at that moment.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use nas_door::DoorError;
use nas_types::verb::{BoxStatus, BoxStatusAnswer};

use crate::control::{Control, Share};
use crate::error::ApiError;
use crate::handler::{Sender, Shared, blocking};
use crate::routes::request_id;

/// Upper bounds of the buckets of durations, in milliseconds.
const BUCKETS_MS: [u64; 9] = [1, 5, 10, 50, 100, 500, 1000, 5000, 30_000];

/// The text's version (Prometheus exposition formats).
const TEXT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What was asked of the box, by verb.
#[derive(Default)]
pub(crate) struct Metrics {
    verbs: Mutex<BTreeMap<&'static str, Series>>,
}

#[derive(Default)]
struct Series {
    /// Answers by class: 2xx, 4xx, 429, 5xx.
    answers: [u64; CLASSES.len()],
    /// Answers at most as slow as each bound.
    within: [u64; BUCKETS_MS.len()],
    micros: u64,
}

const CLASSES: [&str; 4] = ["2xx", "4xx", "429", "5xx"];

impl Metrics {
    /// Counts an answer.
    pub(crate) fn count(&self, verb: &'static str, status: StatusCode, took: Duration) {
        let class = match status {
            StatusCode::TOO_MANY_REQUESTS => 2,
            status if status.is_client_error() => 1,
            status if status.is_server_error() => 3,
            _ => 0,
        };
        let mut verbs = self.verbs.lock().unwrap_or_else(PoisonError::into_inner);
        let series = verbs.entry(verb).or_default();
        series.answers[class] += 1;
        for (count, bound) in series.within.iter_mut().zip(BUCKETS_MS) {
            *count += u64::from(took <= Duration::from_millis(bound));
        }
        series.micros = series.micros.saturating_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    fn write(&self, text: &mut String) {
        let verbs = self.verbs.lock().unwrap_or_else(PoisonError::into_inner);
        head(text, "nas_http_requests_total", "counter", "Answers of the HTTP API by verb and class.");
        for (verb, series) in &*verbs {
            for (class, count) in CLASSES.iter().zip(series.answers) {
                line(text, "nas_http_requests_total", &format!("verb=\"{verb}\",class=\"{class}\""), count);
            }
        }
        let name = "nas_http_request_duration_seconds";
        head(text, name, "histogram", "Time from the request's head to the answer.");
        for (verb, series) in &*verbs {
            let all: u64 = series.answers.iter().sum();
            for (bound, count) in BUCKETS_MS.iter().zip(series.within) {
                let bound = format!("verb=\"{verb}\",le=\"{}.{:03}\"", bound / 1000, bound % 1000);
                line(text, &format!("{name}_bucket"), &bound, count);
            }
            line(text, &format!("{name}_bucket"), &format!("verb=\"{verb}\",le=\"+Inf\""), all);
            let seconds = format!("{}.{:06}", series.micros / 1_000_000, series.micros % 1_000_000);
            line(text, &format!("{name}_sum"), &format!("verb=\"{verb}\""), seconds);
            line(text, &format!("{name}_count"), &format!("verb=\"{verb}\""), all);
        }
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

fn line(text: &mut String, name: &str, labels: &str, value: impl std::fmt::Display) {
    let _ =
        if labels.is_empty() { writeln!(text, "{name} {value}") } else { writeln!(text, "{name}{{{labels}}} {value}") };
}

/// What the box says of itself.
fn write_status(status: &BoxStatusAnswer, text: &mut String) {
    let mut gauge = |name: &str, help: &str, labels: &str, value: u64| {
        head(text, name, "gauge", help);
        line(text, name, labels, value);
    };
    gauge("nas_build_info", "Version of the program.", &format!("version=\"{}\"", status.version), 1);
    let level = ["none", "no_new_runs", "read_only", "sealed"].iter().position(|level| *level == status.level);
    if let Some(level) = level {
        gauge("nas_degradation_level", "0 none, 1 no new runs, 2 read-only, 3 sealed.", "", level as u64);
    }
    let Some(details) = &status.details else { return };
    for (name, help, value) in [
        ("nas_pool_bytes", "Size of the pool.", details.pool_bytes),
        ("nas_pool_free_bytes", "Bytes that ordinary writes may still use.", details.free_bytes),
        ("nas_pool_reserve_bytes", "Bytes kept back so that deleting always works.", details.reserve_bytes),
        ("nas_main_generation", "Number of the current generation of main.", details.generation),
        ("nas_branches", "Live branches.", details.branches),
        ("nas_gates_pending", "Gates that wait for a decision.", details.gates_pending),
        ("nas_ledger_head", "Number of the newest record.", details.head.seq),
        ("nas_clock_trusted", "1 when the wall clock is trusted.", u64::from(details.clock_trusted)),
    ] {
        gauge(name, help, "", value);
    }
}

/// The text, for the owner.
pub(crate) async fn handle_metrics<C: Control>(State(shared): State<Shared<C>>, request: Request) -> Response {
    let id = request_id(&request);
    let from = Sender::of(&request);
    drop(request);
    let status = async {
        let from = from?;
        let permit = shared.workers.take()?;
        let shared = shared.clone();
        blocking(permit, id, move || {
            let caller = shared.admit(&from, &OnceLock::new())?;
            match shared.control.share(&caller) {
                Share::Owner => shared.control.call(&caller, BoxStatus::default()),
                Share::Nobody => Err(DoorError::Unauthenticated("this needs the owner's token".into())),
                Share::Run(_) => Err(DoorError::Denied {
                    rule: "owner-only".into(),
                    reason: "only the owner may see the box's metrics".to_owned(),
                }),
            }
        })
        .await
    }
    .await;
    match status {
        Ok(status) => {
            let mut text = String::new();
            write_status(&status, &mut text);
            shared.metrics.write(&mut text);
            ([(header::CONTENT_TYPE, TEXT_TYPE)], text).into_response()
        }
        Err(error) => ApiError::respond(error, id),
    }
}
