-- name: schema
CREATE TABLE IF NOT EXISTS segment_index (
    first_seq INTEGER PRIMARY KEY,   -- number of the segment's first line
    lines     INTEGER NOT NULL,
    bytes     INTEGER NOT NULL,      -- of segment_lines.lines
    first_ms  INTEGER NOT NULL,
    last_ms   INTEGER NOT NULL,
    worst     INTEGER NOT NULL,      -- highest rank of a level in it
    traces    BLOB NOT NULL          -- the last 4 bytes of each distinct trace id in it
);
CREATE TABLE IF NOT EXISTS segment_lines (
    first_seq INTEGER PRIMARY KEY,
    lines     BLOB NOT NULL          -- JSON lines, each ended by a newline
);

-- name: add_index
INSERT INTO segment_index (first_seq, lines, bytes, first_ms, last_ms, worst, traces) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: add_lines
INSERT INTO segment_lines (first_seq, lines) VALUES (?, ?);

-- name: newest
SELECT first_seq, lines, bytes, first_ms, last_ms, worst, traces FROM segment_index ORDER BY first_seq DESC LIMIT ?;

-- name: lines_from
SELECT lines FROM segment_lines WHERE first_seq >= ? ORDER BY first_seq;

-- name: drop_index_from
DELETE FROM segment_index WHERE first_seq >= ?;

-- name: drop_lines_from
DELETE FROM segment_lines WHERE first_seq >= ?;

-- name: oldest
SELECT first_seq, last_ms, bytes FROM segment_index ORDER BY first_seq LIMIT ?;

-- name: drop_index_until
DELETE FROM segment_index WHERE first_seq <= ?;

-- name: drop_lines_until
DELETE FROM segment_lines WHERE first_seq <= ?;

-- name: find
SELECT first_seq FROM segment_index
WHERE last_ms >= :since_ms AND worst >= :worst AND first_seq + lines > :after_seq
ORDER BY first_seq DESC;

-- name: find_trace
SELECT first_seq FROM segment_index
WHERE instr(traces, :trace) > 0 AND last_ms >= :since_ms AND worst >= :worst AND first_seq + lines > :after_seq
ORDER BY first_seq DESC;

-- name: lines_of
SELECT lines FROM segment_lines WHERE first_seq = ?;
