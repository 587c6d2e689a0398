"""The control plane: membership, and the table it spreads."""
