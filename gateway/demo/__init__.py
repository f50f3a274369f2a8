"""The demo upstream: an ordinary MCP server that knows nothing of tasks and nothing of the gateway.

It stands for the servers that people already have, so it uses only the public API of the `mcp`
package and is started as a stdio child like any other.
"""
