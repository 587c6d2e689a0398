"""Pure: leases and who is how alive."""
