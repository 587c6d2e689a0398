"""The other control nodes: telling them, being told, comparing tables."""
