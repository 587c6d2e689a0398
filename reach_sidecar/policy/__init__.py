"""Pure decisions: `now` and randomness are arguments."""
