-- A record may expire. It then counts as missing, and a sweep deletes it.
ALTER TABLE record ADD COLUMN expires INTEGER; -- in milliseconds; nothing if it stays until it is deleted
CREATE INDEX record_expires ON record (expires) WHERE expires IS NOT NULL;
