"""Plugins that come with the gateway; installed as `mcp_task_gateway_plugins`."""
