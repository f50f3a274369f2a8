"""The tests, by level: cold, warm, contract, wire, chaos, bench. A package, so that levels can share servers and tools."""
