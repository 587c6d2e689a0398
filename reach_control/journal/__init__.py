"""What a control node notes on disk, so that it can go on after a restart."""
