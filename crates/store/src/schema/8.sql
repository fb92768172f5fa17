-- Texts that many rows would repeat, by their hash. An inbox row's data, or a record, then is that hash. Those that nothing refers to
-- any more go with the next sweep.
CREATE TABLE shared (hash TEXT PRIMARY KEY NOT NULL, text TEXT NOT NULL) WITHOUT ROWID;
