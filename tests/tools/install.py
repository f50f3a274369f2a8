"""Install the foreign programs: `python -m tests.tools.install [NAME…]`.

Without a name all are installed. What is there at the pinned versions is left alone. The package
clients' own settings (proxies, caches) hold.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.tools import find, pins

TIMEOUT = 600
TRIES = 3
WORKERS = 3


def main(names: Sequence[str]) -> int:
    """Install what is named; return 0, or 1 where something could not be installed."""
    # The longest first, so that the workers end together.
    known = [*pins.VENVS, *pins.NPM]
    if unknown := sorted(set(names) - set(known)):
        sys.stderr.write(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}\n")
        return 2
    with ThreadPoolExecutor(WORKERS) as workers:
        faults = [fault for fault in workers.map(_install, names or known) if fault]
    for fault in faults:
        sys.stderr.write(f"{fault}\n")
    return 1 if faults else 0


def _install(name: str) -> str | None:
    """Install one entry where its stamp does not tell that it is there; return what went wrong."""
    place = find.npm_prefix(name) if name in pins.NPM else find.venv(name)
    stamp, pinned = place / "stamp", _pinned(name)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == pinned:
        return None
    sys.stdout.write(f"installing {name} in {place}\n")
    sys.stdout.flush()
    try:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        for step in _npm_steps(place, name) if name in pins.NPM else _venv_steps(place, name):
            _run(step)
    except (OSError, RuntimeError, find.ToolMissing) as fault:
        return f"{name} could not be installed: {fault}"
    stamp.write_text(pinned, encoding="utf-8")
    return None


def _pinned(name: str) -> str:
    """Return what the stamp of an entry says: all that decides what is installed."""
    if name in pins.NPM:
        return " ".join(pins.NPM[name])
    return f"{sys.version_info[:2]}\n{pins.VENVS[name].read_text(encoding='utf-8')}"


def _npm_steps(place: Path, name: str) -> list[list[str]]:
    options = ["--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
    npm = [str(find.node()), str(find.npm_cli())]
    return [[*npm, "install", "--prefix", str(place), *options, *pins.NPM[name]]]


def _venv_steps(place: Path, name: str) -> list[list[str]]:
    python = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    # This environment's own pip serves the others: a copy in each would take longer than the packages.
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--quiet", "--disable-pip-version-check"]
    # What is imported is compiled then; most never is.
    install = ["install", "--no-compile", "-r", str(pins.VENVS[name])]
    if name in pins.WITHOUT_DEPENDENCIES:
        install.append("--no-deps")
    unpack = [[str(python), str(find.ROOT / "tests/tools/unpack.py")]] if name == "deploy" else []
    return [[sys.executable, "-m", "venv", "--without-pip", str(place)], [*pip, *install], *unpack]


def _run(command: list[str]) -> None:
    """Run a command, again where a registry stumbled; raise `RuntimeError` with the end of its output."""
    # The project's own constraints name other releases of the same packages.
    environment = {key: value for key, value in os.environ.items() if key != "PIP_CONSTRAINT"}
    # npm's install scripts look for node on the path.
    environment["PATH"] = f"{find.node().parent}{os.pathsep}{environment.get('PATH', '')}"
    output = ""
    for _ in range(TRIES):
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired:
            output = f"no end after {TIMEOUT} s"
            continue
        if done.returncode == 0:
            return
        output = (done.stdout + done.stderr)[-2000:]
    raise RuntimeError(f"{' '.join(command)}\n{output}")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
