"""What this control node is known by: its id, its signing key, the mesh's secret."""
