"""The internal model of tasks: what a task is, how it may move, what the policy says; cold."""
