-- name: get
SELECT agent, journal, caller FROM note WHERE key = ?;

-- name: keys
SELECT key FROM note LIMIT ?;

-- name: put
INSERT INTO note (key, agent, journal, caller, put_ms) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET agent = excluded.agent, journal = excluded.journal, caller = excluded.caller,
    put_ms = excluded.put_ms;

-- name: drop
DELETE FROM note WHERE key = ?;

-- name: expire
DELETE FROM note WHERE id IN (SELECT id FROM note WHERE put_ms <= ? ORDER BY put_ms LIMIT ?);
