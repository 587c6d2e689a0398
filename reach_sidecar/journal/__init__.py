"""What a sidecar notes on disk before it acts, so that after a crash no call runs twice."""
