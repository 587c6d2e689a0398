INSERT INTO entry (agent_id, encoded, signature, expires_ms) VALUES (:agent_id, :encoded, :signature, :expires_ms)
ON CONFLICT (agent_id) DO UPDATE SET encoded = :encoded, signature = :signature, expires_ms = :expires_ms;
