-- Texts that many rows have in common, by their hash. The data of an inbox row, or a record, is such a hash. A sweep deletes
-- the texts that no row refers to.
CREATE TABLE shared (hash TEXT PRIMARY KEY NOT NULL, text TEXT NOT NULL) WITHOUT ROWID;

-- The ids of a subtree are read from the index alone.
DROP INDEX session_parent;
CREATE INDEX session_parent ON session (parent, id) WHERE parent IS NOT NULL;
