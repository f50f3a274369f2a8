"""Paths and files that the configuration names: made absolute, and secrets read from theirs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gateway.config.mistakes import Mistake
from gateway.config.shape import Place, as_dict

MAX_BYTES: Final = 64 << 10


def read_files(tree: dict[str, Any], folder: Path, overridden: Mapping[Place, Any]) -> list[Mistake]:
    """Resolve relative paths against the folder of the configuration, and put in what `*_file` keys name.

    A value from the environment wins over the other form of it in the file.
    """
    mistakes: list[Mistake] = []
    _one_secret(tree, (), "secret", folder, overridden, mistakes)
    if (store := as_dict(tree.get("store"))) is not None:
        _one_secret(store, ("store",), "password", folder, overridden, mistakes)
    for name, value in (as_dict(tree.get("upstreams")) or {}).items():
        if (upstream := as_dict(value)) is not None:
            place: Place = ("upstreams", name)
            for key in ("ca_file", "cwd", "headers_file"):
                _resolve(upstream, key, folder)
            _headers(upstream, place, mistakes)
    return mistakes


def _resolve(section: dict[str, Any], key: str, folder: Path) -> None:
    value = section.get(key)
    if isinstance(value, str) and value:
        section[key] = str(folder / Path(value).expanduser())


def _one_secret(
    section: dict[str, Any],
    place: Place,
    key: str,
    folder: Path,
    overridden: Mapping[Place, Any],
    mistakes: list[Mistake],
) -> None:
    file_key = f"{key}_file"
    if section.get(key) is not None and section.get(file_key) is not None:
        if (*place, key) in overridden:
            del section[file_key]
        elif (*place, file_key) in overridden:
            del section[key]
        else:
            mistakes.append(Mistake((*place, file_key), f"give {key} or {file_key}, not both"))
            return
    _resolve(section, file_key, folder)
    text = _text(section, file_key, place, mistakes)
    if text is not None:
        section[key] = text.rstrip("\r\n")
        if not section[key]:
            mistakes.append(Mistake((*place, file_key), "the file is empty"))


def _text(section: dict[str, Any], key: str, place: Place, mistakes: list[Mistake]) -> str | None:
    value = section.get(key)
    if not isinstance(value, str):
        return None
    try:
        with Path(value).open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            words = "the file is larger than 64KiB"
        else:
            return raw.decode()
    except OSError as error:
        words = f"the file cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        words = "the file is not UTF-8"
    mistakes.append(Mistake((*place, key), words))
    return None


def _headers(upstream: dict[str, Any], place: Place, mistakes: list[Mistake]) -> None:
    text = _text(upstream, "headers_file", place, mistakes)
    if text is None:
        return
    headers = as_dict(upstream.get("headers") or {})
    if headers is None:
        return
    known = {name.lower() for name in headers}
    merged = dict(headers)
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, value = line.partition(":")
        if not colon:
            words = f'line {number} of the file is not a header; write it like "Name: value"'
        elif name.strip().lower() in known:
            words = f"line {number} of the file names a header that is already there"
        else:
            known.add(name.strip().lower())
            merged[name.strip()] = value.strip()
            continue
        mistakes.append(Mistake((*place, "headers_file"), words))
    upstream["headers"] = merged
