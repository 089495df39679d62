"""Machine tests that need what this machine's kernel may lack: in a Debian guest that plays the host."""
