"""Where results go: one contract, one file for each kind."""
