"""Changes on their way to sidecars."""
