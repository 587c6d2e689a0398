"""What both daemons ask of the operating system: ports and state directories."""
