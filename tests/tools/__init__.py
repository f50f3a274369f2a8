"""Foreign programs that the tests run against, pinned and kept in `.tools/` beside the project.

`install` puts them there, `find` tells where they are.
"""

from tests.tools.find import ToolMissing, node, npm_program, venv_program, venv_python

__all__ = ["ToolMissing", "node", "npm_program", "venv_program", "venv_python"]
