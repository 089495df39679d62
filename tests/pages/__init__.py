"""What a stranger reads first."""
