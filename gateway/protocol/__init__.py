"""The JSON-RPC, SSE and HTTP facts of MCP; cold: values in, values out, or a `Refusal`."""
