SELECT encoded, signature FROM entry WHERE expires_ms IS NULL OR expires_ms > :now_ms;
