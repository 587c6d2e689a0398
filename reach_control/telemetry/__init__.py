"""What a control node says about itself: log lines and metrics."""
