"""The HTTP doors of a control node."""
