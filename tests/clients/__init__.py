"""Real clients of others, each as a program that plays scenes against a server and tells what happened.

`python -m tests.clients.NAME URL PLAN` (run in the client's own environment) and
`node --import ./tests/clients/packages.mjs tests/clients/NAME.mjs URL PLAN`. The plan is a JSON list of
scenes, `{"scene": "task", "tool": NAME, "arguments": {}}`; the last line written is a JSON object with
one account for each scene. They judge nothing: what should have happened is the tests' to know.
"""
