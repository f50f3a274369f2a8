"""The wire forms of tasks, each a translator to and from the internal model; cold."""
