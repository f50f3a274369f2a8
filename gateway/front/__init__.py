"""Doors: HTTP and pipes. Knows transports, knows no tasks."""
