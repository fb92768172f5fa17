//! Parts whose text grows while the model writes.

use std::sync::Arc;

use api::{Event, EventBody, Frame, MessageId, Part, PartId, PartTime, SessionId};

use crate::batch::Location;

/// The text of a part that can grow.
pub(crate) fn text(part: &Part) -> Option<&str> {
    match part {
        Part::Text(part) => Some(&part.text),
        Part::Reasoning(part) => Some(&part.text),
        _ => None,
    }
}

/// Like [`text`], but mutable.
pub(crate) fn text_mut(part: &mut Part) -> Option<&mut String> {
    match part {
        Part::Text(part) => Some(&mut part.text),
        Part::Reasoning(part) => Some(&mut part.text),
        _ => None,
    }
}

/// Whether the part's text may still grow: it has begun and not ended. Text written by the user has no time at all.
pub(crate) fn is_open(part: &Part) -> bool {
    let time = match part {
        Part::Text(part) => part.time.as_ref(),
        Part::Reasoning(part) => Some(&part.time),
        _ => None,
    };
    matches!(time, Some(PartTime { end: None, .. }))
}

/// The ids of a part, its session and its message, even if its type is unknown.
pub(crate) fn ids(part: &Part) -> Option<(PartId, SessionId, MessageId)> {
    if let Part::Other(map) = part {
        let field = |name: &str| map.get(name).and_then(|value| value.as_str());
        return Some((
            PartId::parse(field("id")?).ok()?,
            SessionId::parse(field("sessionID")?).ok()?,
            MessageId::parse(field("messageID")?).ok()?,
        ));
    }
    let head = part.head()?;
    Some((head.id.clone(), head.session_id.clone(), head.message_id.clone()))
}

/// The event for text that grew by `delta`.
pub(crate) fn delta(part: &Part, delta: &str) -> Option<EventBody> {
    let head = part.head()?;
    Some(EventBody::PartDelta {
        session_id: head.session_id.clone(),
        message_id: head.message_id.clone(),
        part_id: head.id.clone(),
        field: "text".to_owned(),
        delta: delta.to_owned(),
    })
}

/// A frame outside the log for text that grew by `delta`.
pub(crate) fn delta_frame(location: &Location, part: &Part, delta: &str) -> Option<Frame> {
    Some(live_frame(location, self::delta(part, delta)?))
}

/// A frame outside the log for a part with its text so far.
pub(crate) fn part_frame(location: &Location, part: &Part) -> Option<Frame> {
    Some(live_frame(location, EventBody::part(part.clone())?))
}

/// A frame outside the log.
pub(crate) fn live_frame(location: &Location, body: EventBody) -> Frame {
    let frame = Frame::live(location.directory.clone(), location.project.clone(), Arc::new(Event::new(body)));
    frame.of_turn(location.turn)
}
