-- Rows hold the JSON of an api type; the other columns are those that queries need.

CREATE TABLE session (
    id TEXT PRIMARY KEY NOT NULL,
    project TEXT NOT NULL,
    directory TEXT NOT NULL,
    parent TEXT,
    updated INTEGER NOT NULL,
    title TEXT NOT NULL, -- in lower case, for the search
    json TEXT NOT NULL
);
CREATE INDEX session_updated ON session (updated DESC, id);
CREATE INDEX session_project ON session (project, updated DESC, id);
CREATE INDEX session_directory ON session (directory, updated DESC, id);
CREATE INDEX session_parent ON session (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX root_updated ON session (updated DESC, id) WHERE parent IS NULL;
CREATE INDEX root_project ON session (project, updated DESC, id) WHERE parent IS NULL;
CREATE INDEX root_directory ON session (directory, updated DESC, id) WHERE parent IS NULL;

-- Messages are ordered by creation time, then by rowid: clients may choose ids that do not sort.
CREATE TABLE message (
    id TEXT PRIMARY KEY NOT NULL,
    session TEXT NOT NULL,
    created INTEGER NOT NULL,
    json TEXT NOT NULL
);
CREATE INDEX message_session ON message (session, created);

CREATE TABLE part (
    id TEXT PRIMARY KEY NOT NULL,
    session TEXT NOT NULL,
    message TEXT NOT NULL,
    open INTEGER NOT NULL, -- its text may still grow
    json TEXT NOT NULL
);
CREATE INDEX part_message ON part (message, id);
CREATE INDEX part_session ON part (session);
CREATE INDEX part_open ON part (session) WHERE open = 1;

-- The log. A row without json only records that a part's text grew to a length.
CREATE TABLE event (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL,
    session TEXT,
    directory TEXT NOT NULL,
    project TEXT NOT NULL,
    part TEXT, -- the text or reasoning part that this row opens, grows or closes
    length INTEGER, -- its length; nothing once it is closed
    json TEXT
);

CREATE TABLE inbox (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    message TEXT NOT NULL UNIQUE,
    session TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    accepted INTEGER NOT NULL
);
CREATE INDEX inbox_session ON inbox (session);

CREATE TABLE ask (
    id TEXT PRIMARY KEY NOT NULL,
    session TEXT NOT NULL,
    project TEXT NOT NULL,
    directory TEXT NOT NULL,
    kind TEXT NOT NULL,
    json TEXT NOT NULL,
    reply TEXT
);
CREATE INDEX ask_session ON ask (session);
CREATE INDEX ask_open ON ask (kind, id) WHERE reply IS NULL;

CREATE TABLE approval (
    project TEXT NOT NULL,
    permission TEXT NOT NULL,
    pattern TEXT NOT NULL,
    UNIQUE (project, permission, pattern)
);

CREATE TABLE todo (session TEXT PRIMARY KEY NOT NULL, json TEXT NOT NULL);
CREATE TABLE project (id TEXT PRIMARY KEY NOT NULL, json TEXT NOT NULL);
CREATE TABLE status (session TEXT PRIMARY KEY NOT NULL, json TEXT NOT NULL);

CREATE TABLE record (
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    version INTEGER NOT NULL,
    json TEXT NOT NULL,
    PRIMARY KEY (namespace, key)
) WITHOUT ROWID;

CREATE TABLE lease (
    session TEXT PRIMARY KEY NOT NULL,
    owner TEXT NOT NULL,
    epoch INTEGER NOT NULL
);
CREATE INDEX lease_owner ON lease (owner);

CREATE TABLE signal (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL,
    session TEXT NOT NULL,
    json TEXT NOT NULL
);
CREATE INDEX signal_owner ON signal (owner, id);

-- Numbers that only grow, so that an epoch or a version is never reused.
CREATE TABLE counter (name TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL);
