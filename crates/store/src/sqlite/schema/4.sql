-- Without AUTOINCREMENT, which writes an extra page with every commit. The log is never emptied, only pruned at its old
-- end, so its greatest number keeps growing without it.
ALTER TABLE event RENAME TO old_event;
CREATE TABLE event (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    session TEXT,
    directory TEXT NOT NULL,
    project TEXT NOT NULL,
    part TEXT, -- the text or reasoning part that this row opens, grows or closes
    length INTEGER, -- its length; nothing once it is closed
    json TEXT
);
INSERT INTO event SELECT seq, id, session, directory, project, part, length, json FROM old_event ORDER BY seq;
DROP TABLE old_event;

-- One page per waiting prompt instead of two.
ALTER TABLE inbox RENAME TO old_inbox;
CREATE TABLE inbox (
    message TEXT PRIMARY KEY NOT NULL,
    session TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    accepted INTEGER NOT NULL,
    position INTEGER NOT NULL -- prompts are answered in this order
) WITHOUT ROWID;
INSERT INTO inbox SELECT message, session, attempts, accepted, position FROM old_inbox;
DROP TABLE old_inbox;
