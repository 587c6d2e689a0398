DELETE FROM entry WHERE expires_ms <= :now_ms;
