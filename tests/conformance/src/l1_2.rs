//! L1.2: a child wider than its parent is refused (LEASE-2): paths as sets, actions, time.

use serde_json::json;

use crate::report::{Verdict, require};
use crate::subject::Subject;

pub(crate) fn run(nas: &Subject) -> Verdict {
    let dir = nas.dir("l1_2");
    nas.import(&dir, &[("a/one", "1\n"), ("b/two", "2\n")])?;
    let at = |rest: &str| format!("{dir}{rest}");
    let parent = nas.lease(&[&at("/a/**"), &at("/b/two")], &["read", "write"], 600)?;
    let narrower: [(&[String], &[&str]); 4] = [
        (&[at("/a/**")], &["read", "write"]),
        (&[at("/b/two"), at("/a/deep/**")], &["read"]),
        (&[at("/a/one")], &["list"]),
        (&[at("/a/**"), at("/a/one")], &["write"]),
    ];
    for (paths, actions) in narrower {
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let child = nas.child(&parent, &paths, actions, 300)?;
        let related = child.info["parent"] == parent.id() && child.run() == parent.run();
        require(related, || "a child names its parent and is of the same run; it does not".to_owned())?;
        let later = child.info["expires_at"].as_str() > parent.info["expires_at"].as_str();
        require(!later, || "a child ends with its parent at the latest; it ends later".to_owned())?;
    }
    let wider: [(&[String], &[&str]); 9] = [
        (&["/**".to_owned()], &["read"]),
        (&[at("/**")], &["read"]),
        (&[at("/a/**"), at("/b/**")], &["read"]),
        (&[at("/b/two/**")], &["read"]),
        // The prefix of a text is not the prefix of a path.
        (&[at("/ab/**")], &["read"]),
        (&[at("/a/**"), "/elsewhere".to_owned()], &["read"]),
        (&[at("/a/**")], &["propose"]),
        (&[at("/a/**")], &["read", "write", "propose"]),
        (&[at("/b")], &["list"]),
    ];
    let mark = nas.head()?;
    for (paths, actions) in wider {
        let asked: Vec<&str> = paths.iter().map(String::as_str).collect();
        let given = nas.child(&parent, &asked, actions, 300).is_ok();
        require(!given, || format!("a child with {actions:?} on paths beyond its parent's is refused; it was issued"))?;
    }
    nas.refusal_recorded(mark, "a wider child", |record| record["run"] == parent.run())?;
    // Longer than the parent: refused, or cut to the parent's end.
    if let Ok(longer) = nas.child(&parent, &[&at("/a/**")], &["read"], 3600) {
        let later = longer.info["expires_at"].as_str() > parent.info["expires_at"].as_str();
        require(!later, || "a child asked for longer ends with its parent; it ends later".to_owned())?;
    }
    // A grandchild is compared with the child, not with the root.
    let child = nas.child(&parent, &[&at("/a/**")], &["read"], 300)?;
    let given = nas.child(&child, &[&at("/a/**")], &["write"], 300).is_ok();
    require(!given, || "a grandchild wider than the child is refused; it was issued".to_owned())?;
    let shown = nas.call("lease/show", Some(&child.token), &json!({}))?;
    require(shown["actions"] == json!(["read"]) || shown["actions"] == json!(["list", "read"]), || {
        format!("a lease shows the actions it was issued with; it shows {}", shown["actions"])
    })
}
