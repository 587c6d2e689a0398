"""News spread by telling a few others, and mended by comparing: the same pure machine in sidecars, control nodes and the simulator."""
