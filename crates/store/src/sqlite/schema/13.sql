-- A caller with an identity lists its own sessions alone. Sessions of the owner of the machine, which have no owner, cost
-- no page of this index. What lists filter by is in it, so that rows of other projects are not read.
CREATE INDEX session_owner ON session (owner, updated DESC, id, project, directory, parent) WHERE owner IS NOT NULL;
