//! Asks and approvals: the statements that change them.

use api::{Approval, ApprovalId};
use rusqlite::{Connection, params};

use crate::ask::AskOp;
use crate::error::StoreError;
use crate::sqlite::write::apply::{BatchWriter, run};

/// Answers an ask that is still open.
const ANSWER: &str = "UPDATE ask SET reply = ?2 WHERE id = ?1 AND reply IS NULL";

pub(crate) fn apply(writer: &mut BatchWriter<'_>, op: &AskOp) -> Result<(), StoreError> {
    let (conn, location) = (writer.conn, &writer.batch.location);
    match op {
        AskOp::Open { id, session, kind, call, json } => {
            run(
                conn,
                "INSERT INTO ask (id, session, project, directory, kind, call, json) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                 ON CONFLICT (id) DO NOTHING",
                params![id, session.as_str(), &*location.project, &*location.directory, kind.name(), call, json],
            )?;
        }
        AskOp::Answer { id, reply } => answer(conn, id, reply)?,
        AskOp::AnswerIfOpen { id, reply, event, json } => {
            if run(conn, ANSWER, params![id, reply])? > 0 {
                writer.log_event(event, json, (None, None))?;
            }
        }
        AskOp::Approve(approval) => approve(conn, approval)?,
        AskOp::Revoke(approval) => {
            run(conn, "DELETE FROM approval WHERE ?1 IS NULL OR id = ?1", [approval.as_ref().map(ApprovalId::as_str)])?;
        }
    }
    Ok(())
}

fn answer(conn: &Connection, id: &str, reply: &str) -> Result<(), StoreError> {
    if run(conn, ANSWER, params![id, reply])? == 0 {
        let mut statement = conn.prepare_cached("SELECT EXISTS (SELECT 1 FROM ask WHERE id = ?1)")?;
        let answered = statement.query_row([id], |row| row.get(0))?;
        return Err(StoreError::NotOpen { id: id.to_owned(), answered });
    }
    Ok(())
}

fn approve(conn: &Connection, approval: &Approval) -> Result<(), StoreError> {
    let Approval { id, project_id, directory, permission, pattern, created } = approval;
    let sql = "INSERT INTO approval (id, project, directory, permission, pattern, created)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING";
    run(conn, sql, params![id.as_str(), project_id, directory, permission, pattern, created]).map(drop)
}
