//! Control verbs: one request and one response each (filled in below).
