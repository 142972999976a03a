//! What came out: the table for people and `conformance.json`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{Subject, TESTS, Test};

/// Why a test did not pass.
#[derive(Debug)]
pub enum Miss {
    /// The implementation breaks the rule: what was expected and what was found.
    Failed(String),
    /// The implementation does not offer what the test is about: it says so itself when it is asked.
    NotImplemented(String),
}

/// How a test ended.
pub type Verdict = Result<(), Miss>;

impl From<nas_nfsclient::Error> for Miss {
    fn from(error: nas_nfsclient::Error) -> Self {
        Self::Failed(format!("over NFS: {error}"))
    }
}

/// Fails with `expected` unless `holds`.
pub(crate) fn require(holds: bool, expected: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(Miss::Failed(expected())) }
}

/// One thing that is not as the specification says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deviation {
    /// Id of the test.
    pub test: String,
    /// What was expected and what was found, for a person.
    pub because: String,
}

/// `conformance.json` (SPEC, acceptance tests).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// What the box calls itself.
    pub implementation: String,
    /// Its version.
    pub version: String,
    /// Version of the specification.
    pub spec: String,
    /// The highest level of which, and of those below it, every test passed; `none` when there is none.
    pub level: String,
    /// `pass`, `fail` or `not_implemented` for each test that was run.
    pub tests: BTreeMap<String, String>,
    /// Why not `pass`.
    pub deviations: Vec<Deviation>,
}

impl Report {
    /// An empty report about `subject`.
    pub(crate) fn of(subject: &Subject) -> Result<Self, String> {
        let status = subject.call("box/status", None, &json!({})).map_err(|error| error.to_string())?;
        let version = status["version"].as_str().ok_or("POST /v1/box/status names no version")?.to_owned();
        Ok(Self {
            implementation: subject.implementation(),
            version,
            spec: "0.2".to_owned(),
            level: "none".to_owned(),
            tests: BTreeMap::new(),
            deviations: Vec::new(),
        })
    }

    pub(crate) fn add(&mut self, test: &Test, verdict: Verdict) {
        let (word, because) = match verdict {
            Ok(()) => ("pass", None),
            Err(Miss::Failed(because)) => ("fail", Some(because)),
            Err(Miss::NotImplemented(because)) => ("not_implemented", Some(because)),
        };
        self.tests.insert(test.id.to_owned(), word.to_owned());
        self.deviations.extend(because.map(|because| Deviation { test: test.id.to_owned(), because }));
    }

    pub(crate) fn rate(&mut self) {
        let all_pass =
            |level: &str| TESTS.iter().filter(|test| test.id.starts_with(level)).all(|test| self.is(test.id, "pass"));
        let reached = ["L0", "L1"].into_iter().take_while(|level| all_pass(level)).last();
        self.level = reached.unwrap_or("none").to_owned();
    }

    fn is(&self, id: &str, word: &str) -> bool {
        self.tests.get(id).is_some_and(|found| found == word)
    }

    /// Did any test fail?
    #[must_use]
    pub fn failed(&self) -> bool {
        self.tests.values().any(|word| word == "fail")
    }

    /// The file: indented, with a newline at the end.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("because texts always serialise") + "\n"
    }

    /// The table.
    #[must_use]
    pub fn to_table(&self) -> String {
        let mut out = format!("{} {}, specification {}\n\n", self.implementation, self.version, self.spec);
        for test in TESTS.iter() {
            if let Some(word) = self.tests.get(test.id) {
                let _ = writeln!(out, "{:<5} {word:<16} {}", test.id, test.what);
            }
            for deviation in self.deviations.iter().filter(|deviation| deviation.test == test.id) {
                let _ = writeln!(out, "      {}", deviation.because);
            }
        }
        let _ = writeln!(out, "\nlevel: {}", self.level);
        out
    }
}
