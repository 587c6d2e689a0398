-- name: get
SELECT state, fingerprint, head, body, spool, pieces FROM run WHERE key = ?;

-- name: begin
INSERT INTO run (key, state, fingerprint) VALUES (?, 'running', ?)
ON CONFLICT (key) DO UPDATE SET state = 'running', fingerprint = excluded.fingerprint, ended_ms = NULL
WHERE run.state = 'unknown';

-- name: done
UPDATE run SET state = 'done', ended_ms = ?, head = ?, body = ?, spool = ?, pieces = ? WHERE key = ?;

-- name: end
UPDATE run SET state = ?, ended_ms = ?, head = NULL, body = NULL, spool = NULL, pieces = NULL WHERE key = ?;

-- name: forget
DELETE FROM run WHERE key = ?;

-- name: expire
DELETE FROM run WHERE id IN (SELECT id FROM run WHERE ended_ms <= ? AND spool IS NULL ORDER BY ended_ms LIMIT ?);

-- name: expire_spooled
DELETE FROM run WHERE id IN (
    SELECT id FROM run WHERE ended_ms <= ? AND +spool IS NOT NULL ORDER BY ended_ms LIMIT ?
);

-- name: add_piece
INSERT INTO piece (spool, seq, data) VALUES (?, ?, ?);

-- name: pieces
SELECT data FROM piece WHERE spool = ? ORDER BY seq;

-- name: drop_pieces
DELETE FROM piece WHERE spool = ?;
