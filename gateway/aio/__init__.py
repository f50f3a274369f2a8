"""The only callers of `create_task` and of clocks."""
