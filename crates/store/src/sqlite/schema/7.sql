-- The content of each file as a session last read or wrote it.
CREATE TABLE file_version (
    session TEXT NOT NULL,
    path TEXT NOT NULL, -- without symbolic links
    hash TEXT NOT NULL, -- empty if there was no file
    content TEXT, -- nothing if it is long or no text
    PRIMARY KEY (session, path)
) WITHOUT ROWID;
