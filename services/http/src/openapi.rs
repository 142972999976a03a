//! The OpenAPI 3.1 document, made from the structs of the verbs. Only the tests make it: what is served is the golden
//! file they compare it with, so that a change of the API is a diff that a person reviews.
//!
//! `NAS_GOLDEN=write cargo test -p nas-http openapi` rewrites the file.

use std::borrow::Cow;
use std::collections::BTreeMap;

use nas_door::{DoorVerb, KEY_BYTES_MAX, changes};
use nas_types::verb::{Audience, ErrorBody, TreeImport, TreeImported};
use schemars::generate::{Contract, SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use crate::limits::{IMPORT_LINE_BYTES_MAX, JSON_BYTES_MAX};

/// Builds the document path by path.
pub(crate) struct Document {
    requests: SchemaGenerator,
    answers: SchemaGenerator,
    paths: BTreeMap<String, Value>,
    /// Requests that take an idempotency key.
    keyed: Vec<Cow<'static, str>>,
}

impl Document {
    pub(crate) fn new() -> Self {
        Self {
            requests: generator(Contract::Deserialize),
            answers: generator(Contract::Serialize),
            paths: BTreeMap::new(),
            keyed: Vec::new(),
        }
    }

    /// One verb of one JSON request and one JSON answer.
    pub(crate) fn verb<V: DoorVerb>(&mut self) {
        if changes(V::CLASS) && V::AUDIENCE != Audience::Anyone {
            self.keyed.push(V::schema_name());
        }
        let request = self.requests.subschema_for::<V>();
        let about = self.description::<V>();
        // Where every field may be left out the body still is an object.
        let body = json!({ "required": true, "content": { "application/json": { "schema": request } } });
        self.path::<V::Answer>(V::NAME, V::AUDIENCE, &about, &body);
    }

    /// The verb whose body is a line of JSON and then a stream.
    pub(crate) fn import(&mut self, name: &str, audience: Audience) {
        let line = self.requests.subschema_for::<TreeImport>();
        let about = self.description::<TreeImport>();
        let body = json!({ "required": true, "content": { "application/octet-stream": {
            "schema": { "description": format!(
                "One line of at most {IMPORT_LINE_BYTES_MAX} bytes of JSON, as in x-first-line; then a tar stream."
            ) },
            "x-first-line": line,
        } } });
        self.path::<TreeImported>(name, audience, &about, &body);
    }

    fn path<Answer: JsonSchema>(&mut self, name: &str, audience: Audience, about: &str, body: &Value) {
        let answer = self.answers.subschema_for::<Answer>();
        let (summary, _) = about.split_once(['.', ':']).unwrap_or((about, ""));
        let noun = name.split_once('/').map_or(name, |(noun, _)| noun);
        let security = match audience {
            Audience::Anyone => json!([{}, { "owner": [] }, { "lease": [] }]),
            Audience::Lease => json!([{ "lease": [] }]),
            Audience::Owner => json!([{ "owner": [] }]),
            Audience::LeaseOrOwner => json!([{ "owner": [] }, { "lease": [] }]),
        };
        let mut responses = Map::new();
        responses.insert(
            "200".into(),
            json!({
                "description": "Done.",
                "headers": {
                    "x-request-id": { "$ref": "#/components/headers/x-request-id" },
                    "idempotency-replayed": { "$ref": "#/components/headers/idempotency-replayed" },
                    "ratelimit": { "$ref": "#/components/headers/ratelimit" },
                    "ratelimit-policy": { "$ref": "#/components/headers/ratelimit-policy" },
                },
                "content": { "application/json": { "schema": answer } },
            }),
        );
        for (status, name, _) in FAILURES {
            responses.insert((*status).into(), json!({ "$ref": format!("#/components/responses/{name}") }));
        }
        let operation = json!({
            "operationId": name.replace(['/', '-'], "_"),
            "summary": summary.replace('\n', " "),
            "description": about,
            "tags": [noun],
            "security": security,
            "requestBody": body,
            "responses": responses,
        });
        self.paths.insert(format!("/v1/{name}"), json!({ "post": operation }));
    }

    /// What a request's doc comment says.
    fn description<T: JsonSchema>(&mut self) -> String {
        let schema = self.requests.root_schema_for::<T>();
        let about = schema.get("description").and_then(Value::as_str);
        about.expect("because every public struct of a verb has a doc comment").to_owned()
    }

    /// The whole document.
    pub(crate) fn finish(mut self) -> Value {
        let error = self.answers.subschema_for::<ErrorBody>();
        let mut schemas = self.requests.take_definitions(true);
        for (name, schema) in self.answers.take_definitions(true) {
            if let Some(other) = schemas.get(&name) {
                assert_eq!(other, &schema, "{name} looks different in requests and in answers: use two types");
            }
            schemas.insert(name, schema);
        }
        for name in self.keyed {
            schemas[&*name]["properties"]["idempotency_key"] = json!({
                "description": "Any text of your own that names this call, a fresh UUID for example. The same call with \
                    the same token and key is done once and answered again, for 24 h.",
                "type": "string", "minLength": 1, "maxLength": KEY_BYTES_MAX, "pattern": "^[!-~]+$",
            });
        }
        json!({
            "openapi": "3.1.0",
            "info": {
                "title": "Agent NAS control API",
                "version": "1",
                "license": { "name": "Apache 2.0", "identifier": "Apache-2.0" },
                "description": ABOUT,
            },
            "servers": [{ "url": "/" }],
            "paths": self.paths,
            "components": {
                "schemas": schemas,
                "responses": failures(&error),
                "headers": {
                    "x-request-id": {
                        "description": "Names the request in the answer, in the box's log and in error reports.",
                        "schema": { "type": "string", "pattern": "^req_[2-9a-hjkmnp-z]{12}$" },
                    },
                    "idempotency-replayed": {
                        "description": "The answer is that of an earlier call under the same idempotency_key; nothing was done now.",
                        "schema": { "const": "true" },
                    },
                    "ratelimit": {
                        "description": "Calls left (r) and seconds until all are there again (t); draft-ietf-httpapi-ratelimit-headers.",
                        "schema": { "type": "string", "pattern": "^\"calls\";r=[0-9]+;t=[0-9]+$" },
                    },
                    "ratelimit-policy": {
                        "description": "Calls at once after a rest (q), which come back in as many seconds (w).",
                        "schema": { "type": "string", "pattern": "^\"calls\";q=[0-9]+;w=[0-9]+$" },
                    },
                    "retry-after": {
                        "description": "Seconds to wait before the same call is worth another try (RFC 9110, 10.2.3).",
                        "schema": { "type": "integer", "minimum": 0 },
                    },
                    "www-authenticate": {
                        "description": "How to authenticate (RFC 6750, 3).", "schema": { "type": "string" },
                    },
                },
                "securitySchemes": {
                    "owner": {
                        "type": "http", "scheme": "bearer",
                        "description": "The owner's token, from owner/login. Decisions need the passphrase as well.",
                    },
                    "lease": {
                        "type": "http", "scheme": "bearer",
                        "description": "The token of a run's lease, from lease/create.",
                    },
                },
            },
        })
    }
}

const ABOUT: &str = "Every call is a POST with a JSON object as its body, {} when there is nothing to say. Fields that are \
    not known are refused. Lists are read in pages: give the cursor of one answer to the next call. Every failure has \
    the one body ErrorBody; its code is stable, its message says what to do next, and retryable says whether the same \
    call can succeed later without a change. What a caller may not see is answered as what does not exist.";

/// What any call may fail with: status, name, meaning.
const FAILURES: &[(&str, &str, &str)] = &[
    ("400", "BadRequest", "The body is not JSON, or was cut."),
    ("401", "Unauthorized", "No token, one that is not known, or one that is over."),
    ("403", "Forbidden", "Not allowed to this caller, a wrong passphrase, or sent by a page of another site."),
    ("404", "NotFound", "It does not exist, or this caller may not see it."),
    ("408", "RequestTimeout", "The body did not arrive in time."),
    ("409", "Conflict", "Not possible in the present state."),
    ("413", "ContentTooLarge", "The body is too large."),
    ("415", "UnsupportedMediaType", "The content-type is not the one of this call."),
    ("421", "MisdirectedRequest", "The Host header names another host."),
    ("422", "UnprocessableContent", "A field is missing, not known, or has a value that is not possible."),
    ("429", "TooManyRequests", "Too much at once: come back later."),
    ("500", "InternalServerError", "The box made a mistake; its log tells more."),
    ("503", "ServiceUnavailable", "The box protects itself and refuses this for now."),
    ("507", "InsufficientStorage", "A quota or the disk is full."),
];

fn failures(error: &Schema) -> Value {
    let all = FAILURES.iter().map(|(status, name, about)| {
        let mut headers = json!({ "x-request-id": { "$ref": "#/components/headers/x-request-id" } });
        for (header, of) in [("retry-after", "429"), ("www-authenticate", "401")] {
            if *status == of {
                headers[header] = json!({ "$ref": format!("#/components/headers/{header}") });
            }
        }
        let content = json!({ "application/json": { "schema": error } });
        ((*name).to_owned(), json!({ "description": about, "headers": headers, "content": content }))
    });
    Value::Object(all.collect())
}

fn generator(contract: Contract) -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
        settings.contract = contract;
    });
    settings.into_generator()
}

/// A body that is refused for its size alone is smaller in no document.
const _: () = assert!(IMPORT_LINE_BYTES_MAX <= JSON_BYTES_MAX);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use nas_types::verb::{STREAMED, VERBS};
    use serde_json::Value;

    use crate::routes::openapi;

    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");

    /// Goal: what the box says about its API is what the code does, and nobody changes it without seeing it.
    #[test]
    fn openapi_is_the_golden_file() {
        let now = serde_json::to_string_pretty(&openapi()).unwrap() + "\n";
        if std::env::var_os("NAS_GOLDEN").is_some_and(|v| v == "write") {
            std::fs::write(FILE, &now).unwrap();
        }
        let kept = std::fs::read_to_string(FILE).unwrap();
        assert!(kept == now, "the API changed: NAS_GOLDEN=write cargo test -p nas-http openapi, then review the diff");
    }

    /// Goal: verbs and documented calls are one to one; the commands of `nas` are compared with the same list there.
    #[test]
    fn openapi_has_every_verb() {
        let document = openapi();
        let paths = document["paths"].as_object().unwrap();
        let documented: BTreeSet<&str> = paths.keys().map(|path| path.strip_prefix("/v1/").unwrap()).collect();
        let verbs: BTreeSet<&str> = VERBS.iter().chain(STREAMED).map(|verb| verb.0).collect();
        assert_eq!(documented, verbs);
        let ids: BTreeSet<&str> = paths.values().map(|path| path["post"]["operationId"].as_str().unwrap()).collect();
        assert_eq!(ids.len(), verbs.len(), "two calls have the same operationId");
    }

    /// Goal: the document refers to nothing that is not in it.
    #[test]
    fn openapi_references_resolve() {
        fn check(whole: &Value, part: &Value, found: &mut usize) {
            match part {
                Value::Object(fields) => {
                    if let Some(target) = fields.get("$ref") {
                        let pointer = target.as_str().and_then(|text| text.strip_prefix('#')).unwrap();
                        assert!(whole.pointer(pointer).is_some(), "{pointer} is not in the document");
                        *found += 1;
                    }
                    fields.values().for_each(|value| check(whole, value, found));
                }
                Value::Array(items) => items.iter().for_each(|value| check(whole, value, found)),
                _ => {}
            }
        }
        let document = openapi();
        let mut found = 0;
        check(&document, &document, &mut found);
        assert!(found > VERBS.len(), "only {found} references");
    }
}
