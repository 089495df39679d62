"""Programs that measure: each emits a series of JSON lines with all parameters, and asserts nothing."""
