"""Documents: what of a file is prose, and how translations get back into it; one file a format."""
