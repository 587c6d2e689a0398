"""The agents of `reach demo`: plain programs that import nothing of ours, run as files."""
