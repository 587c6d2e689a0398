"""`reach`: one verb per file, thin over the packages."""
