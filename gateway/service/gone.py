"""What is raised where a task is no longer this replica's."""

from __future__ import annotations


class TaskGone(Exception):
    """The task has been deleted, has ended elsewhere, or belongs to another replica now."""
