"""The tests, by level: cold, warm, contract, wire, chaos, bench.

A package, so that the levels can share servers and tools.
"""
