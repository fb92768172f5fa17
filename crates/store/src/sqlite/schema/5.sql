-- Messages and parts have their own order, in which they were stored: times are for people, and clocks go back.
-- Existing rows keep the order in which they were listed.
ALTER TABLE message RENAME TO old_message;
CREATE TABLE message (
    id TEXT PRIMARY KEY NOT NULL,
    session TEXT NOT NULL,
    position INTEGER NOT NULL, -- counts in each session, from 1
    stamp TEXT NOT NULL, -- the greatest stamp of an id in the session up to here: new ids are made to sort after it
    turn INTEGER NOT NULL, -- which turn of its session wrote it; 0 is unknown
    json TEXT NOT NULL
);
INSERT INTO message (id, session, position, stamp, turn, json)
SELECT id, session, row_number() OVER place,
       coalesce(max(iif(id GLOB 'msg_[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]*',
                        substr(id, 5, 12), NULL)) OVER place, ''),
       0, json
FROM old_message WINDOW place AS (PARTITION BY session ORDER BY created, rowid);
DROP TABLE old_message;
CREATE UNIQUE INDEX message_session ON message (session, position);

-- Existing parts get no position, which would rewrite them all; they stay sorted by id.
ALTER TABLE part ADD COLUMN position INTEGER NOT NULL DEFAULT 0; -- counts in each message, from 1
DROP INDEX part_message;
CREATE INDEX part_message ON part (message, position, id);

-- Turns are numbered, to tell which answers belong to which turn.
ALTER TABLE turn ADD COLUMN number INTEGER NOT NULL DEFAULT 0;

-- Children and asks are listed by rowid, in the order of their creation, and not by id.
DROP INDEX session_parent;
CREATE INDEX session_parent ON session (parent) WHERE parent IS NOT NULL;
DROP INDEX ask_open;
CREATE INDEX ask_open ON ask (kind) WHERE reply IS NULL;

-- The log is also bounded in bytes. Every row has the running total, so the bytes of any range are one subtraction.
ALTER TABLE event RENAME TO old_event;
CREATE TABLE event (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    session TEXT,
    directory TEXT NOT NULL,
    project TEXT NOT NULL,
    part TEXT, -- the text or reasoning part that this row opens, grows or closes
    length INTEGER, -- its length; nothing once it is closed
    total INTEGER NOT NULL, -- bytes of the log up to here, about
    json TEXT -- nothing if a part grew, or if the session is deleted
);
-- If the log is too long, only its newest rows are kept, and always the last one: its number must not be reused.
INSERT INTO event (seq, id, session, directory, project, part, length, total, json)
SELECT seq, id, session, directory, project, part, length,
       sum(coalesce(octet_length(json), 0) + 200) OVER (ORDER BY seq), json
FROM old_event
WHERE seq > (SELECT min(coalesce(max(seq), 0), (SELECT coalesce(max(seq), 0) FROM old_event) - 1)
             FROM (SELECT seq, sum(coalesce(octet_length(json), 0) + 200) OVER (ORDER BY seq DESC) AS bytes
                   FROM old_event)
             WHERE bytes > 67108864);
DROP TABLE old_event;

-- Deleted sessions that may still have rows, events or files. Log rows up to this number are theirs.
CREATE TABLE removed (session TEXT PRIMARY KEY NOT NULL, seq INTEGER NOT NULL) WITHOUT ROWID;
