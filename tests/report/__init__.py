"""Programs that show what a benchmark measured: each reads results files and measures nothing."""
