"""The registry at work: requests decided, time watched, changes noted on disk and handed to those who wait."""
