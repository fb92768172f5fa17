//! Finds a session by its id, by the beginning or the end of its id, or as the last one.

use api::{Host, HostError, ListSessions, Scope, Session, SessionId};

use crate::exit::{Exit, Failure};
use crate::terminal::one_line;

/// The name of the newest session of the directory.
pub const LAST: &str = "last";
/// The prefix of all ids.
const PREFIX: &str = "ses_";
/// The most sessions that are compared with a part of an id.
const MAX_COMPARED: usize = 10_000;
/// The most sessions among which an error finds similar ids.
const MAX_SUGGESTED: usize = 50;
/// The most sessions that an error lists if several match.
const MAX_CANDIDATES: usize = 8;

/// Finds a session by its id, by a unique part of it, or by `last`. The error for an unknown one lists similar ids.
pub async fn find_session(host: &dyn Host, scope: &Scope, wanted: &str) -> anyhow::Result<Session> {
    let wanted = wanted.trim();
    if wanted == LAST {
        return last(host, scope).await;
    }
    if let Ok(id) = SessionId::parse(wanted) {
        match host.session(&id).await {
            Ok(session) => return Ok(session),
            Err(HostError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // This project first: a part that is unique here need not be unique everywhere.
    let mut known = Vec::new();
    for everywhere in [false, true] {
        let query = ListSessions { everywhere, limit: Some(MAX_COMPARED), ..ListSessions::default() };
        let sessions = host.sessions(scope, query).await?;
        if let Some(session) = pick(wanted, &sessions)? {
            return Ok(session.clone());
        }
        if known.is_empty() {
            let roots = sessions.iter().filter(|session| session.parent_id.is_none());
            known = roots.take(MAX_SUGGESTED).map(|session| session.id.to_string()).collect();
        }
    }
    Err(Failure::unknown("session", wanted, &known).into())
}

/// The newest session of the directory, without subagents.
async fn last(host: &dyn Host, scope: &Scope) -> anyhow::Result<Session> {
    let query = ListSessions { directory_only: true, roots: true, limit: Some(1), ..ListSessions::default() };
    let last = host.sessions(scope, query).await?.into_iter().next();
    Ok(last.ok_or_else(|| {
        Failure::new(Exit::Failed, "there is no session in this directory")
            .hint("start one with `trefoil run`, or name one that `trefoil session list --all` shows")
    })?)
}

/// The one session whose id begins or ends with that, with or without the prefix.
fn pick<'a>(wanted: &str, sessions: &'a [Session]) -> Result<Option<&'a Session>, Failure> {
    let part = wanted.strip_prefix(PREFIX).unwrap_or(wanted);
    if part.is_empty() {
        return Ok(None);
    }
    let by_start: Vec<&Session> = sessions.iter().filter(|session| unprefixed(session).starts_with(part)).collect();
    let ends_so = |session: &&Session| part == wanted && unprefixed(session).ends_with(part);
    let found = if by_start.is_empty() { sessions.iter().filter(ends_so).collect() } else { by_start };
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        several => Err(ambiguous(wanted, several)),
    }
}

/// An id without its prefix.
fn unprefixed(session: &Session) -> &str {
    let id = session.id.as_str();
    id.strip_prefix(PREFIX).unwrap_or(id)
}

fn ambiguous(wanted: &str, several: &[&Session]) -> Failure {
    let name = |session: &&Session| format!("{} ({})", session.id, one_line(&session.title, 40));
    let mut names: Vec<String> = several.iter().take(MAX_CANDIDATES).map(name).collect();
    if several.len() > MAX_CANDIDATES {
        names.push(format!("and {} more", several.len() - MAX_CANDIDATES));
    }
    let message = format!("{wanted} can be any of {} sessions", several.len());
    Failure::new(Exit::Usage, message).hint(format!("give more of the id: {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: &str) -> Session {
        serde_json::from_value(serde_json::json!({
            "id": id, "slug": "s", "projectID": "p", "directory": "/", "title": format!("title of {id}"), "version": "1",
            "time": {"created": 1, "updated": 1},
        }))
        .unwrap()
    }

    fn found_id(wanted: &str, ids: &[&str]) -> Result<Option<String>, Failure> {
        let sessions: Vec<Session> = ids.iter().map(|id| session(id)).collect();
        pick(wanted, &sessions).map(|found| found.map(|session| session.id.to_string()))
    }

    #[test]
    fn a_unique_part_is_enough() {
        let ids = ["ses_abc111", "ses_abd222", "ses_xyz111"];
        for (wanted, want) in [
            ("ses_abc", Some("ses_abc111")),
            ("abc", Some("ses_abc111")),
            ("x", Some("ses_xyz111")),
            ("ses_abd222", Some("ses_abd222")),
            ("222", Some("ses_abd222")),
            ("c111", Some("ses_abc111")),
            ("ses_", None),
            ("", None),
            ("ses_222", None),
            ("nope", None),
            ("ABC", None),
        ] {
            assert_eq!(found_id(wanted, &ids).unwrap().as_deref(), want, "{wanted}");
        }
    }

    #[test]
    fn every_unique_part_finds_its_session_and_all_others_list_candidates() {
        let ids: Vec<String> = (0..200_u32).map(|n| format!("ses_{:08x}", n.wrapping_mul(2_654_435_761))).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        for id in &ids {
            for length in 1..=8 {
                let part = &id[PREFIX.len()..][..length];
                let same = ids.iter().filter(|other| other[PREFIX.len()..].starts_with(part)).count();
                for wanted in [part.to_owned(), format!("{PREFIX}{part}")] {
                    match found_id(&wanted, &ids) {
                        Ok(found) => assert_eq!((found.as_deref(), same), (Some(*id), 1), "{wanted}"),
                        Err(failure) => {
                            assert!(same > 1, "{wanted}");
                            assert_eq!(failure.exit, Exit::Usage);
                            let hint = failure.hint.unwrap();
                            assert!(hint.contains("title of ses_") && hint.len() < 1000, "{hint}");
                        }
                    }
                }
            }
        }
    }
}
