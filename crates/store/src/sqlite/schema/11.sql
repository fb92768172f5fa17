-- What the engine kept as records and looks up by session are tables. They have rows only for what is going on, except
-- for worktrees, which stay until they are merged or removed.
CREATE TABLE paused (
    session TEXT PRIMARY KEY NOT NULL, -- everything below it is paused as well
    since INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE blocked (
    session TEXT PRIMARY KEY NOT NULL, -- its turn waits for a budget
    bound TEXT NOT NULL, -- cost, tokens, steps or seconds
    budget TEXT NOT NULL, -- the session whose budget it is
    message TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE task_link (
    part TEXT PRIMARY KEY NOT NULL, -- the call
    version INTEGER NOT NULL, -- grows with every change
    parent TEXT NOT NULL, -- the session that called
    child TEXT NOT NULL, -- the session that works for it
    prompt TEXT NOT NULL,
    title TEXT NOT NULL,
    input TEXT, -- the prompt as JSON until it is sent
    cancelled INTEGER NOT NULL,
    careful INTEGER NOT NULL,
    awaited INTEGER, -- whether the caller's turn waits for it before ending; nothing unless it is in the background
    follower TEXT -- the process that reports the end of a background task
) WITHOUT ROWID;
CREATE INDEX task_link_child ON task_link (child);
-- Every turn looks for its background tasks before it ends. A call that is waited for costs no page of this index.
CREATE INDEX task_link_background ON task_link (parent) WHERE awaited IS NOT NULL;

CREATE TABLE worktree (
    session TEXT PRIMARY KEY NOT NULL, -- written before its session, and may outlive it
    parent TEXT NOT NULL,
    origin TEXT NOT NULL,
    target TEXT NOT NULL,
    main TEXT NOT NULL,
    directory TEXT NOT NULL,
    branch TEXT NOT NULL,
    base TEXT NOT NULL,
    missing INTEGER NOT NULL,
    filled INTEGER NOT NULL
) WITHOUT ROWID;

-- Records that could not be read counted as missing; `OR IGNORE` drops those without a value that is needed.
INSERT INTO paused (session, since)
SELECT key, CASE WHEN json_valid(json) THEN coalesce(json ->> '$.since', 0) ELSE 0 END
FROM record WHERE namespace = 'paused' AND key IN (SELECT id FROM session);

WITH known AS (SELECT key, iif(json_valid(json), json, '{}') AS json FROM record WHERE namespace = 'blocked')
INSERT OR IGNORE INTO blocked (session, bound, budget, message)
SELECT key, json ->> '$.bound', json ->> '$.sessionID', json ->> '$.message'
FROM known WHERE key IN (SELECT id FROM session);

WITH known AS (
    SELECT key, iif(json_valid(json), json, '{}') AS json FROM record WHERE namespace IN ('task', 'background')
)
INSERT OR IGNORE INTO task_link
    (part, version, parent, child, prompt, title, input, cancelled, careful, awaited, follower)
SELECT key, 1, json ->> '$.session', json ->> '$.child', json ->> '$.prompt', coalesce(json ->> '$.title', ''),
       nullif(json -> '$.input', 'null'), coalesce(json ->> '$.cancelled', 0), coalesce(json ->> '$.careful', 0),
       CASE json_type(json, '$.background') WHEN 'object' THEN coalesce(json ->> '$.background.awaited', 0) END,
       json ->> '$.background.follower'
FROM known WHERE json ->> '$.session' IN (SELECT id FROM session);

WITH known AS (SELECT key, iif(json_valid(json), json, '{}') AS json FROM record WHERE namespace = 'worktree')
INSERT OR IGNORE INTO worktree
    (session, parent, origin, target, main, directory, branch, base, missing, filled)
SELECT key, json ->> '$.parent', json ->> '$.origin', json ->> '$.target', json ->> '$.main', json ->> '$.directory',
       json ->> '$.branch', json ->> '$.base', json ->> '$.missing', json ->> '$.filled'
FROM known;

DELETE FROM record WHERE namespace IN ('paused', 'blocked', 'task', 'background', 'worktree');

-- What queries filter and order by are columns: only upkeep looks into JSON, of events and parts, and no order is that of
-- hidden row numbers, which a rewrite of the file may change. A `number` is the same value under a name, so it costs
-- nothing.
ALTER TABLE session RENAME TO old_session;
CREATE TABLE session (
    number INTEGER PRIMARY KEY, -- in the order of creation
    id TEXT NOT NULL UNIQUE,
    project TEXT NOT NULL,
    directory TEXT NOT NULL,
    parent TEXT,
    updated INTEGER NOT NULL,
    archived INTEGER,
    path TEXT, -- of the directory, below the root of its project
    workspace TEXT,
    title TEXT NOT NULL, -- in lower case, for the search
    data TEXT, -- of the engine; the store does not interpret it. A hash refers to a shared text
    owner TEXT, -- who created it; nothing for the owner of the machine
    json TEXT NOT NULL
);
INSERT INTO session
    (number, id, project, directory, parent, updated, archived, path, workspace, title, data, owner, json)
SELECT rowid, id, project, directory, parent, updated, iif(json_valid(json), json ->> '$.time.archived', NULL),
       iif(json_valid(json), json ->> '$.path', NULL), iif(json_valid(json), json ->> '$.workspaceID', NULL), title,
       data, owner, json
FROM old_session ORDER BY rowid;
DROP TABLE old_session;
CREATE INDEX session_updated ON session (updated DESC, id, parent);
CREATE INDEX session_project ON session (project, updated DESC, id, parent);
CREATE INDEX session_directory ON session (directory, updated DESC, id, parent);
CREATE INDEX session_parent ON session (parent, id) WHERE parent IS NOT NULL;

ALTER TABLE ask RENAME TO old_ask;
CREATE TABLE ask (
    number INTEGER PRIMARY KEY, -- in the order in which they were asked
    id TEXT NOT NULL UNIQUE,
    session TEXT NOT NULL,
    project TEXT NOT NULL,
    directory TEXT NOT NULL,
    kind TEXT NOT NULL,
    call TEXT, -- the tool call that asks
    json TEXT NOT NULL,
    reply TEXT
);
INSERT INTO ask (number, id, session, project, directory, kind, call, json, reply)
SELECT rowid, id, session, project, directory, kind, iif(json_valid(json), json ->> '$.tool.callID', NULL), json, reply
FROM old_ask ORDER BY rowid;
DROP TABLE old_ask;
CREATE INDEX ask_session ON ask (session);
CREATE INDEX ask_open ON ask (kind) WHERE reply IS NULL;

ALTER TABLE approval RENAME TO old_approval;
CREATE TABLE approval (
    number INTEGER PRIMARY KEY, -- in the order in which they were given
    id TEXT NOT NULL UNIQUE,
    project TEXT NOT NULL,
    directory TEXT NOT NULL,
    permission TEXT NOT NULL,
    pattern TEXT NOT NULL,
    created INTEGER NOT NULL,
    UNIQUE (directory, permission, pattern)
);
INSERT INTO approval (number, id, project, directory, permission, pattern, created)
SELECT rowid, id, project, directory, permission, pattern, created FROM old_approval ORDER BY rowid;
DROP TABLE old_approval;

ALTER TABLE project RENAME TO old_project;
CREATE TABLE project (
    number INTEGER PRIMARY KEY, -- in the order of their first use
    id TEXT NOT NULL UNIQUE,
    json TEXT NOT NULL
);
INSERT INTO project (number, id, json) SELECT rowid, id, json FROM old_project ORDER BY rowid;
DROP TABLE old_project;

ALTER TABLE message ADD COLUMN open INTEGER NOT NULL DEFAULT 0; -- an answer that is not complete
UPDATE message SET open = 1 WHERE
    CASE WHEN json_valid(json) THEN json ->> '$.role' = 'assistant' AND json ->> '$.time.completed' IS NULL END;
