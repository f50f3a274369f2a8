"""The store's scripts, one file for each atomic step."""
