-- What whoever accepted a prompt wants to keep with it as long as it waits. The journal does not look into it.
ALTER TABLE inbox ADD COLUMN data TEXT;
