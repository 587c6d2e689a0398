-- Format 1 had the owner beside the entry, where it is now part of it, and no signatures. The rows are copied, because
-- SQLite can drop a column only since 3.35.
BEGIN IMMEDIATE;
DROP INDEX IF EXISTS entry_expires;
ALTER TABLE entry RENAME TO entry_of_format_1;
CREATE TABLE entry (
    agent_id TEXT PRIMARY KEY,
    encoded BLOB NOT NULL,
    signature BLOB NOT NULL,
    expires_ms INTEGER
) WITHOUT ROWID;
INSERT INTO entry (agent_id, encoded, signature, expires_ms)
SELECT agent_id, encoded, x'', expires_ms FROM entry_of_format_1;
DROP TABLE entry_of_format_1;
PRAGMA user_version = 2;
COMMIT;
