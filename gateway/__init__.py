"""MCP Task Gateway: tasks for MCP servers that nobody has to change."""

__version__ = "0.1.0"
