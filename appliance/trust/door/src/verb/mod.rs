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
mod standing;
mod trash;
mod tree;
mod trees;

pub(crate) use owner::OWNER;

use std::fmt::Display;
use std::str::FromStr;

use nas_ledger::{LedgerError, Row};

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

/// One page of rows that the ledger lists by pages, as `show` shows them; those that it does not show are passed over.
fn ledger_page<R: Row, T>(
    cursor: Option<&str>,
    limit: Option<u32>,
    list: impl Fn(Option<R::Key>, u32) -> Result<Vec<R>, LedgerError>,
    show: impl Fn(R) -> Option<T>,
) -> Result<(Vec<T>, Option<String>), DoorError>
where
    R::Key: FromStr + Display + Copy,
{
    let most = page_rows(limit)?;
    let unknown = || DoorError::Invalid { field: "cursor", reason: "give the cursor of an earlier answer".to_owned() };
    let mut after: Option<R::Key> = cursor.map(|cursor| cursor.parse().map_err(|_| unknown())).transpose()?;
    let (mut page, mut last) = (Vec::new(), None);
    loop {
        let rows = list(after, u32::try_from(most + 1).unwrap_or(u32::MAX)).map_err(|error| match error {
            LedgerError::Missing { .. } => unknown(),
            error => DoorError::Ledger(error),
        })?;
        let end = rows.len() <= most;
        for row in rows {
            let key = *row.key();
            after = Some(key);
            let Some(shown) = show(row) else { continue };
            if page.len() == most {
                return Ok((page, last));
            }
            page.push(shown);
            last = Some(key.to_string());
        }
        if end {
            return Ok((page, None));
        }
    }
}
