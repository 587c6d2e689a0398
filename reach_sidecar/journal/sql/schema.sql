-- name: schema
CREATE TABLE journal (
    only    INTEGER PRIMARY KEY CHECK (only = 1),
    id      BLOB NOT NULL,           -- random; another file has another one
    time_ms INTEGER NOT NULL,        -- the journal's clock when it was last noted, and beside it
    wall_ms INTEGER NOT NULL         -- the latest time of day ever seen: see clock.py
);
-- Rows come in order of time, so neighbours share pages and a sync; only the index by key is written at random.
CREATE TABLE run (
    id          INTEGER PRIMARY KEY,
    key         BLOB NOT NULL UNIQUE,
    state       TEXT NOT NULL,       -- running, done, unknown, not_kept
    fingerprint BLOB NOT NULL,
    ended_ms    INTEGER,             -- by the journal's clock; null while it runs
    head        BLOB,                -- of the answer: see answer.py
    body        BLOB,                -- of the answer, or what of it comes after the pieces
    spool       INTEGER,             -- whose pieces the body begins with
    pieces      INTEGER              -- how many those are
);
CREATE INDEX run_ended ON run (ended_ms) WHERE ended_ms IS NOT NULL;
CREATE INDEX run_spool ON run (spool) WHERE spool IS NOT NULL;
-- Pieces are written while the answer still streams, before any row points to them.
CREATE TABLE piece (
    spool INTEGER NOT NULL,
    seq   INTEGER NOT NULL,
    data  BLOB NOT NULL,
    PRIMARY KEY (spool, seq)
) WITHOUT ROWID;
CREATE TRIGGER run_deleted AFTER DELETE ON run WHEN old.spool IS NOT NULL BEGIN
    DELETE FROM piece WHERE spool = old.spool;
END;
CREATE TRIGGER run_changed AFTER UPDATE OF spool ON run WHEN old.spool IS NOT NULL AND new.spool IS NOT old.spool BEGIN
    DELETE FROM piece WHERE spool = old.spool;
END;
CREATE TABLE note (
    id      INTEGER PRIMARY KEY,
    key     BLOB NOT NULL UNIQUE,
    agent   TEXT NOT NULL,
    journal BLOB NOT NULL,           -- the called store's id
    caller  TEXT NOT NULL,           -- as the called side knows this sidecar's agent
    put_ms  INTEGER NOT NULL         -- by the journal's clock
);
CREATE INDEX note_put ON note (put_ms);

-- name: born
INSERT INTO journal (only, id, time_ms, wall_ms) VALUES (1, ?, ?, ?);

-- name: identity
SELECT id, time_ms, wall_ms FROM journal WHERE only = 1;

-- name: note_time
UPDATE journal SET time_ms = ?, wall_ms = ?;

-- name: drop_orphans
DELETE FROM piece WHERE spool NOT IN (SELECT spool FROM run WHERE spool IS NOT NULL);
