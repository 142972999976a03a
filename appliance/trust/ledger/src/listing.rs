//! Listings by pages: newest first, from the row after the one that the page before ended with. A page reads its own rows
//! only, through an index; rows made meanwhile come before the first page and move nothing.

use nas_trust_core::gate::GateState;
use nas_types::id::{GateId, LeaseId, RunId};
use nas_types::lease::RoleName;
use rusqlite::types::Value;

use crate::column::{Column as _, Row, load};
use crate::{GateRow, LIST_ROWS_MAX, LeaseRow, LedgerError, Reader, RunRow};

/// Which gates are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GateFilter {
    /// Only those in this state.
    pub state: Option<GateState>,
    /// Only those of this run.
    pub run: Option<RunId>,
}

impl Reader<'_> {
    /// Runs, newest first, of one role if given, after the run `after`; [`LedgerError::Missing`] when there is no such run.
    pub fn runs(&self, role: Option<&RoleName>, after: Option<RunId>, limit: u32) -> Result<Vec<RunRow>, LedgerError> {
        let role = role.map(|role| ("role = ?", Some(role.store())));
        self.listing("started_at", role, after.as_ref(), limit)
    }

    /// Leases, newest first, only those whose time goes on if `usable`, after the lease `after`; [`LedgerError::Missing`]
    /// when there is no such lease.
    pub fn leases(&self, usable: bool, after: Option<LeaseId>, limit: u32) -> Result<Vec<LeaseRow>, LedgerError> {
        // Written as in the index, which is used only then.
        let usable = usable.then_some(("state = 'active' AND remaining_ms > 0", None));
        self.listing("created_at", usable, after.as_ref(), limit)
    }

    /// Gates, newest first, after the gate `after` (whatever its state is by now); [`LedgerError::Missing`] when there is no
    /// such gate.
    pub fn gates(&self, of: GateFilter, after: Option<GateId>, limit: u32) -> Result<Vec<GateRow>, LedgerError> {
        let state = of.state.map(|state| ("state = ?", Some(state.store())));
        let run = of.run.map(|run| ("run = ?", Some(run.store())));
        self.listing("created_at", run.into_iter().chain(state), after.as_ref(), limit)
    }

    fn listing<R: Row>(
        &self,
        age: &'static str,
        filters: impl IntoIterator<Item = (&'static str, Option<Value>)>,
        after: Option<&R::Key>,
        limit: u32,
    ) -> Result<Vec<R>, LedgerError> {
        let (mut terms, mut values) = (Vec::new(), Vec::new());
        for (term, value) in filters {
            terms.push(term.to_owned());
            values.extend(value);
        }
        if let Some(after) = after {
            let sql = format!("SELECT {age} FROM {} WHERE \"{}\" = ?", R::TABLE, R::KEY);
            let found = self.rows(R::TABLE, &sql, &[after.store()], |row| load::<i64>(row, 0, R::TABLE, age))?;
            let then = found.first().ok_or(LedgerError::Missing { table: R::TABLE })?;
            terms.push(format!("({age}, \"{}\") < (?, ?)", R::KEY));
            values.extend([then.store(), after.store()]);
        }
        values.push(limit.min(LIST_ROWS_MAX).store());
        let filter = if terms.is_empty() { String::new() } else { format!("WHERE {}", terms.join(" AND ")) };
        self.select(&format!("{filter} ORDER BY {age} DESC, \"{}\" DESC LIMIT ?", R::KEY), &values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ledger, Options};

    /// Goal: a page costs what it holds, whatever the table holds: every listing goes through an index and sorts nothing.
    #[test]
    fn pages_come_from_an_index() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(&dir.path().join("ledger.db"), Options { ballast_bytes: 0 }).unwrap();
        let listings = [
            ("runs", "started_at", "1"),
            ("runs", "started_at", "role = ?1"),
            ("leases", "created_at", "1"),
            ("leases", "created_at", "state = 'active' AND remaining_ms > 0"),
            ("gates", "created_at", "1"),
            ("gates", "created_at", "state = ?1"),
            ("gates", "created_at", "run = ?1"),
        ];
        for (table, age, filter) in listings {
            for after in ["1".to_owned(), format!("({age}, id) < (?2, ?3)")] {
                let sql = format!(
                    "EXPLAIN QUERY PLAN SELECT * FROM {table} WHERE {filter} AND {after} ORDER BY {age} DESC, id DESC LIMIT 9"
                );
                let plan = ledger.read(|reader| {
                    let mut statement = reader.conn.prepare(&sql).map_err(LedgerError::sql("explaining"))?;
                    let lines =
                        statement.raw_query().mapped(|row| row.get::<_, String>(3)).collect::<Result<Vec<_>, _>>();
                    lines.map(|lines| lines.join("; ")).map_err(LedgerError::sql("explaining"))
                });
                let plan = plan.unwrap();
                assert!(
                    plan.contains("USING INDEX") && !plan.contains("TEMP B-TREE"),
                    "{table} {filter} {after}: {plan}"
                );
                let bounded = !after.contains('<') || plan.contains(&format!("{age}<"));
                assert!(bounded || plan.contains(&format!("({age},id)<")), "{table} {filter} {after}: {plan}");
            }
        }
    }
}
