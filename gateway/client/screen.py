"""What a person sees: the bar, notes and prompts on stderr, results on stdout.

With `--json` the notes and the bar fall away and stdout has one object. Text of the server loses its
control characters on the way to a terminal: it must not move the cursor or pose as a prompt.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from gateway.client.keys import Keys
from gateway.protocol.envelope import dump

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Screen:
    """The terminal, or what is in its place; `keys` is `None` where nobody can be asked."""

    def __init__(self, out: TextIO, err: TextIO, keys: Keys | None, *, as_json: bool) -> None:
        self._out = out
        self._keys = keys
        self._json = as_json
        self._console = Console(file=err, highlight=False, soft_wrap=True)
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __repr__(self) -> str:
        return f"<Screen json={self._json} live={self._bar is not None} asks={self.asks}>"

    @property
    def asks(self) -> bool:
        """Whether there is somebody to ask."""
        return self._keys is not None

    @property
    def shows_bar(self) -> bool:
        """Whether a progress bar can be shown."""
        return self._console.is_terminal and not self._json

    @contextmanager
    def bar(self, title: str) -> Generator[None]:
        """Show a bar while a call runs; it vanishes at the end."""
        if not self.shows_bar:
            yield
            return
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[share]}"),
            TimeElapsedColumn(),
        )
        self._bar = Progress(
            *columns, console=self._console, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._task = self._bar.add_task(_line(title), total=None, share="")
        self._bar.start()
        try:
            yield
        finally:
            self._bar.stop()
            self._bar = None

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Move the bar."""
        if self._bar is None or self._task is None:
            return
        share = f"{done / total:.0%}" if total else f"{done:g}"
        self._bar.update(self._task, completed=done, total=total, share=share)
        if message:
            self.message(message)

    def message(self, text: str) -> None:
        """Say beside the bar what is being done."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=_line(text))

    def note(self, text: str) -> None:
        """Say a line to the person."""
        if not self._json:
            self._console.print(_line(text), markup=False)

    def complain(self, text: str) -> None:
        """Say what went wrong; with `--json` the object says it."""
        if not self._json:
            self._console.print(f"error: {_line(text)}", markup=False)

    async def ask(self, prompt: str) -> str | None:
        """Ask for a line; `None` where there is no more input."""
        if self._keys is None:
            return None
        self._console.print(_plain(prompt), end=" ", markup=False)
        return await self._keys.line()

    def tell(self, text: str) -> None:
        """Say a line that belongs to a prompt, also with `--json`."""
        self._console.print(_plain(text), markup=False)

    @contextmanager
    def held(self) -> Generator[None]:
        """Take the bar away while prompts are on the screen."""
        bar = self._bar
        if bar is not None:
            bar.stop()
        try:
            yield
        finally:
            if bar is not None and self._bar is bar:
                bar.start()

    def text(self, text: str) -> None:
        """Print a piece of a result to stdout; bytes are kept where stdout is no terminal."""
        if not self._json:
            shown = _plain(text) if self._out.isatty() else text.encode(errors="replace").decode()
            print(shown, file=self._out, flush=True)

    def object(self, members: dict[str, Any]) -> None:
        """Print the one JSON object of `--json`."""
        if self._json:
            print(dump(members).decode(), file=self._out, flush=True)


def _plain(text: str) -> str:
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def _line(text: str) -> str:
    return _plain(text).replace("\n", " ")
