-- What each session used itself, and including all its descendants: a deletion subtracts nothing from the ancestors.
-- Money is in billionths of a dollar, so that sums are exact.
CREATE TABLE ledger (
    session TEXT PRIMARY KEY NOT NULL,
    own_cost INTEGER NOT NULL DEFAULT 0,
    own_input INTEGER NOT NULL DEFAULT 0,
    own_output INTEGER NOT NULL DEFAULT 0,
    own_reasoning INTEGER NOT NULL DEFAULT 0,
    own_cache_read INTEGER NOT NULL DEFAULT 0,
    own_cache_write INTEGER NOT NULL DEFAULT 0,
    own_steps INTEGER NOT NULL DEFAULT 0,
    own_tool_calls INTEGER NOT NULL DEFAULT 0,
    own_files INTEGER NOT NULL DEFAULT 0,
    own_estimated_cost INTEGER NOT NULL DEFAULT 0,
    own_estimated_tokens INTEGER NOT NULL DEFAULT 0,
    own_estimated_steps INTEGER NOT NULL DEFAULT 0,
    total_cost INTEGER NOT NULL DEFAULT 0,
    total_input INTEGER NOT NULL DEFAULT 0,
    total_output INTEGER NOT NULL DEFAULT 0,
    total_reasoning INTEGER NOT NULL DEFAULT 0,
    total_cache_read INTEGER NOT NULL DEFAULT 0,
    total_cache_write INTEGER NOT NULL DEFAULT 0,
    total_steps INTEGER NOT NULL DEFAULT 0,
    total_tool_calls INTEGER NOT NULL DEFAULT 0,
    total_files INTEGER NOT NULL DEFAULT 0,
    total_estimated_cost INTEGER NOT NULL DEFAULT 0,
    total_estimated_tokens INTEGER NOT NULL DEFAULT 0,
    total_estimated_steps INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- The files that a session and its descendants changed, so that each is counted once.
CREATE TABLE touched (session TEXT NOT NULL, path TEXT NOT NULL, PRIMARY KEY (session, path)) WITHOUT ROWID;

-- Model calls that are running, or whose process died: the most each may use, and what it costs if it is interrupted.
CREATE TABLE reservation (
    id TEXT PRIMARY KEY NOT NULL,
    session TEXT NOT NULL,
    steps INTEGER NOT NULL,
    prompt INTEGER NOT NULL, -- tokens, estimated
    prompt_cost INTEGER NOT NULL,
    output_price INTEGER NOT NULL, -- of a million tokens
    most_tokens INTEGER NOT NULL,
    most_cost INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX reservation_session ON reservation (session);

CREATE TABLE budget (
    session TEXT PRIMARY KEY NOT NULL,
    cost INTEGER,
    tokens INTEGER,
    steps INTEGER,
    seconds INTEGER,
    began INTEGER NOT NULL -- since when the seconds count
) WITHOUT ROWID;

-- The last turn of each session.
CREATE TABLE turn (
    session TEXT PRIMARY KEY NOT NULL,
    started INTEGER NOT NULL,
    ended INTEGER,
    error TEXT -- of its last answer
) WITHOUT ROWID;

ALTER TABLE part ADD COLUMN running INTEGER NOT NULL DEFAULT 0; -- a tool call that runs
CREATE INDEX part_running ON part (session) WHERE running = 1;

-- Migrates what sessions used before there was a ledger.
INSERT INTO ledger (session, own_cost, own_input, own_output, own_reasoning, own_cache_read, own_cache_write)
SELECT id, cast(round(coalesce(json ->> '$.cost', 0) * 1e9) AS INTEGER), coalesce(json ->> '$.tokens.input', 0),
       coalesce(json ->> '$.tokens.output', 0), coalesce(json ->> '$.tokens.reasoning', 0),
       coalesce(json ->> '$.tokens.cache.read', 0), coalesce(json ->> '$.tokens.cache.write', 0)
FROM session WHERE json ->> '$.tokens.output' > 0 OR json ->> '$.tokens.input' > 0;

WITH RECURSIVE above (id, of, depth) AS (
    SELECT session, session, 0 FROM ledger
    UNION ALL
    SELECT session.parent, above.of, depth + 1 FROM above JOIN session ON session.id = above.id
    WHERE session.parent IS NOT NULL AND depth < 100
)
INSERT INTO ledger
    (session, total_cost, total_input, total_output, total_reasoning, total_cache_read, total_cache_write)
SELECT above.id, sum(own.own_cost), sum(own.own_input), sum(own.own_output), sum(own.own_reasoning),
       sum(own.own_cache_read), sum(own.own_cache_write)
FROM above JOIN ledger AS own ON own.session = above.of WHERE true GROUP BY above.id
ON CONFLICT (session) DO UPDATE SET
    total_cost = excluded.total_cost, total_input = excluded.total_input, total_output = excluded.total_output,
    total_reasoning = excluded.total_reasoning, total_cache_read = excluded.total_cache_read,
    total_cache_write = excluded.total_cache_write;
