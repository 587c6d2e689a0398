CREATE TABLE IF NOT EXISTS entry (
    agent_id TEXT PRIMARY KEY,
    encoded BLOB NOT NULL,       -- the entry's own bytes, tombstones too
    signature BLOB NOT NULL,     -- of a control node over those bytes
    expires_ms INTEGER           -- of tombstones
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS entry_expires ON entry (expires_ms) WHERE expires_ms IS NOT NULL;
