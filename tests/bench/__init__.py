"""The benchmark: direct connection, bare proxy, gateway and FastMCP 4, measured in interleaved rounds."""
