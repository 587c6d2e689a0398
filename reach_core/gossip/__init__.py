"""News spread by telling a few others and mended by comparing: one pure machine for all who take part."""
