-- A turn is a row: the work from its first prompt to its last answer. Numbers count in each session.
ALTER TABLE turn RENAME TO old_turn;
CREATE TABLE turn (
    session TEXT NOT NULL,
    number INTEGER NOT NULL,
    state TEXT NOT NULL, -- queued, running, done, failed or cancelled
    prompts TEXT NOT NULL, -- the ids of its prompts, with spaces between them
    caller TEXT, -- who sent the first prompt; nothing for the owner of the machine
    answer TEXT, -- its last answer, once it has ended
    error TEXT, -- of its last answer
    spent_before INTEGER NOT NULL, -- the total cost of the session and its descendants when it began
    cost INTEGER, -- its own cost, once it has ended
    created INTEGER NOT NULL,
    started INTEGER,
    ended INTEGER,
    PRIMARY KEY (session, number)
) WITHOUT ROWID;

-- The last turn of each session was known before. One that never ended has prompts left, or is over.
INSERT INTO turn (session, number, state, prompts, error, spent_before, cost, created, started, ended)
SELECT session, max(number, 1), CASE WHEN error IS NULL THEN 'done' ELSE 'failed' END, '', error, 0, 0, started, started,
       coalesce(ended, started)
FROM old_turn WHERE ended IS NOT NULL OR session NOT IN (SELECT session FROM inbox);

-- Prompts that wait belong to the next turn of their session.
ALTER TABLE inbox ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
ALTER TABLE inbox ADD COLUMN input TEXT; -- a queued prompt that is not a message yet
INSERT INTO turn (session, number, state, prompts, spent_before, created)
SELECT inbox.session, max(coalesce(old_turn.number, 0)) + 1, 'queued', group_concat(inbox.message, ' '), 0,
       min(inbox.accepted)
FROM (SELECT * FROM inbox ORDER BY position) AS inbox LEFT JOIN old_turn ON old_turn.session = inbox.session
GROUP BY inbox.session;
UPDATE inbox SET turn = (SELECT number FROM turn WHERE turn.session = inbox.session AND state = 'queued');
UPDATE message SET turn = (SELECT turn FROM inbox WHERE inbox.message = message.id) WHERE id IN (SELECT message FROM inbox);
DROP TABLE old_turn;

-- The turn that a session with a status is running.
ALTER TABLE status ADD COLUMN turn INTEGER;
UPDATE status SET turn = (SELECT number FROM turn WHERE turn.session = status.session AND state = 'queued');

-- The turn that an event is part of.
ALTER TABLE event ADD COLUMN turn INTEGER;

-- Data that the engine keeps with a session; the store does not interpret it. A hash refers to a shared text.
ALTER TABLE session ADD COLUMN data TEXT;
ALTER TABLE session ADD COLUMN owner TEXT; -- who created it; nothing for the owner of the machine
UPDATE session SET data = (SELECT CASE WHEN json LIKE '"%' THEN trim(json, '"') ELSE json END FROM record
                           WHERE namespace = 'rules' AND key = session.id);
DELETE FROM record WHERE namespace = 'rules';
