-- A change to a session, a part or a running turn writes a page of each of its indexes, several times per turn. So only
-- the indexes that queries cannot do without are kept.

-- Pages of roots come from the general indexes, which contain the parent.
DROP INDEX root_updated;
DROP INDEX root_project;
DROP INDEX root_directory;
DROP INDEX session_updated;
DROP INDEX session_project;
DROP INDEX session_directory;
CREATE INDEX session_updated ON session (updated DESC, id, parent);
CREATE INDEX session_project ON session (project, updated DESC, id, parent);
CREATE INDEX session_directory ON session (directory, updated DESC, id, parent);

-- The parts of a session are found through its messages.
DROP INDEX part_session;

-- Tables of running or waiting things, which are small enough to scan.
DROP INDEX inbox_session;
DROP INDEX reservation_session;
ALTER TABLE lease RENAME TO old_lease;
CREATE TABLE lease (
    session TEXT PRIMARY KEY NOT NULL,
    owner TEXT NOT NULL,
    epoch INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO lease SELECT session, owner, epoch FROM old_lease;
DROP TABLE old_lease;
ALTER TABLE status RENAME TO old_status;
CREATE TABLE status (session TEXT PRIMARY KEY NOT NULL, json TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO status SELECT session, json FROM old_status;
DROP TABLE old_status;
