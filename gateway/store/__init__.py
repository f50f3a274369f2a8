"""Memory: the only room that says redis."""
