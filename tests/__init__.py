"""Everything that checks Idletime: each folder below is one kind of check."""
