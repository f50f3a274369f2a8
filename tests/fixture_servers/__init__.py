"""Upstream servers for the tests, each run as a process of its own.

`mcp1_server` and `conformance_server` run on the last release of `mcp` 1.x, in a virtual
environment of their own; `mcp2_server` runs on the installed `mcp` 2.x. What they serve is written
once, as plain JSON, in `common_tools` and `suite_tools`.
"""
