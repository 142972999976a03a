//! The control verbs, grouped as in [`nas_types::verb`]: `lease.rs` there has the shapes, `lease.rs` here the acts.

mod branch;
mod decide;
mod device;
mod explain;
mod gate;
mod import;
mod lease;
mod mount;
mod owner;
mod propose;
mod record;
mod run;
mod trash;
mod tree;
mod trees;

pub(crate) use owner::OWNER;

use crate::DoorError;

/// Most rows of one page, and how many when nothing is said.
const PAGE_ROWS_MAX: u32 = 1000;
const PAGE_ROWS_DEFAULT: u32 = 200;

/// Rows of one page, checked.
fn page_rows(limit: Option<u32>) -> Result<usize, DoorError> {
    match limit.unwrap_or(PAGE_ROWS_DEFAULT) {
        rows @ 1..=PAGE_ROWS_MAX => Ok(rows as usize),
        rows => {
            Err(DoorError::Invalid { field: "limit", reason: format!("{rows} is not between 1 and {PAGE_ROWS_MAX}") })
        }
    }
}

/// One page of `rows`, each with its key, in a fixed order: those after `cursor`, and the cursor of the next page.
fn page<T>(
    rows: impl Iterator<Item = (String, T)>,
    cursor: Option<&str>,
    limit: Option<u32>,
) -> Result<(Vec<T>, Option<String>), DoorError> {
    let most = page_rows(limit)?;
    let mut rows =
        rows.skip_while(|(key, _)| cursor.is_some_and(|cursor| key != cursor)).skip(usize::from(cursor.is_some()));
    let mut page = Vec::new();
    let mut last = None;
    for (key, row) in rows.by_ref().take(most) {
        page.push(row);
        last = Some(key);
    }
    Ok((page, last.filter(|_| rows.next().is_some())))
}
