-- Data that the engine keeps with a prompt while it waits. The store does not interpret it.
ALTER TABLE inbox ADD COLUMN data TEXT;

-- An approval holds in one directory, usually the root of a git worktree, and can be listed and revoked by its id. Those of
-- a git project move to its main worktree. The directory of approvals for the project `global` is unknown, so they are
-- dropped.
ALTER TABLE approval RENAME TO old_approval;
CREATE TABLE approval (
    id TEXT PRIMARY KEY NOT NULL,
    project TEXT NOT NULL,
    directory TEXT NOT NULL,
    permission TEXT NOT NULL,
    pattern TEXT NOT NULL,
    created INTEGER NOT NULL,
    UNIQUE (directory, permission, pattern)
);
INSERT OR IGNORE INTO approval (id, project, directory, permission, pattern, created)
SELECT 'psv_' || lower(hex(randomblob(13))), old.project, json_extract(project.json, '$.worktree'), old.permission,
       old.pattern, 0
FROM old_approval AS old JOIN project ON project.id = old.project
WHERE old.project != 'global' AND coalesce(json_extract(project.json, '$.worktree'), '/') != '/'
ORDER BY old.rowid;
DROP TABLE old_approval;
