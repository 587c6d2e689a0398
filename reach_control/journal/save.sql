INSERT INTO entry (agent_id, encoded, instance, expires_ms) VALUES (:agent_id, :encoded, :instance, :expires_ms)
ON CONFLICT (agent_id) DO UPDATE SET encoded = :encoded, instance = :instance, expires_ms = :expires_ms;
