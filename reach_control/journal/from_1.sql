-- Format 1 had the owner beside the entry, where it is now part of it, and no signatures.
BEGIN IMMEDIATE;
ALTER TABLE entry DROP COLUMN instance;
ALTER TABLE entry ADD COLUMN signature BLOB NOT NULL DEFAULT x'';
PRAGMA user_version = 2;
COMMIT;
