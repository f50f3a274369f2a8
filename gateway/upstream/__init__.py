"""The other side: upstream MCP servers behind one port; knows no tasks."""
