-- Who owned the session whose deletion an event reports; nothing for the owner of the machine, and for other events. The
-- session's row is gone by then.
ALTER TABLE event ADD COLUMN owner TEXT;
