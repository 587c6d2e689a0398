"""Registration, renewal and the local view of the table."""
