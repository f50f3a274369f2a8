"""Durations, sizes, rates and counts as a person writes them.

Everything inside the gateway is whole milliseconds and whole bytes; only here are there units.
Each `read_*` takes what YAML or the environment gave and raises `ValueError` in words that say what
would be right; each `show_*` writes the value back in the same notation.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

MAX_DURATION: Final = 3650 * 86_400_000
MAX_SIZE: Final = 1 << 40
MAX_COUNT: Final = 1_000_000_000

_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
DURATION_PATTERN: Final = (
    rf"^(?=[0-9])(?:{_NUMBER}d)?(?:{_NUMBER}h)?(?:{_NUMBER}m(?!s))?(?:{_NUMBER}s)?(?:{_NUMBER}ms)?$"
)
SIZE_PATTERN: Final = rf"^{_NUMBER} ?(?:[kKMGT]i?)?B$"
RATE_PATTERN: Final = r"^[1-9][0-9]{0,8}/(?:second|minute|hour|day)$"

_DURATION_PART = re.compile(rf"({_NUMBER})(ms|s|m|h|d)")
_DURATION_UNITS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_SIZE = re.compile(rf"(-?{_NUMBER}) ?([kKMGT]i?B|B)")
_SIZE_POWERS: Final = {"K": 1, "M": 2, "G": 3, "T": 4}
_PLAIN = re.compile(rf"-?{_NUMBER}")


def quote(value: object, limit: int = 60) -> str:
    """Return a value as an error message shows it: text in quotes, bounded, without control characters."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return str(value)[:limit]
    shown = "".join(c if c.isprintable() else "?" for c in value[:limit])
    return f'"{shown}{"..." if len(value) > limit else ""}"'


def _plain(value: object) -> Decimal | None:
    """Return a plain number, written as one or as text; `None` for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return Decimal(value)
    if isinstance(value, float):
        return Decimal(repr(value)) if math.isfinite(value) else None
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return Decimal(value)
    return None


def read_duration(value: object, *, minimum: int = 1) -> int:
    """Return milliseconds; a plain number is seconds. Raises `ValueError`."""
    amount = _plain(value)
    if amount is not None:
        amount *= 1_000
    elif isinstance(value, str) and re.fullmatch(DURATION_PATTERN, value.removeprefix("-")):
        parts = _DURATION_PART.findall(value)
        amount = sum((Decimal(number) * _DURATION_UNITS[unit] for number, unit in parts), Decimal(0))
        amount = -amount if value.startswith("-") else amount
    else:
        raise ValueError(f"{quote(value)} is not a duration; write it like 500ms, 2s, 1h or 7d")
    if amount < 0:
        raise ValueError(f"{quote(value)} is negative; a duration is written like 500ms, 2s, 1h or 7d")
    if amount > MAX_DURATION:
        raise ValueError(f"{quote(value)} is longer than 10 years; write at most 3650d")
    if amount < minimum:
        raise ValueError(f"{quote(value)} is too short; write at least {show_duration(minimum)}")
    return int(amount)


def show_duration(milliseconds: int) -> str:
    """Return the shortest exact notation of a duration."""
    if milliseconds == 0:
        return "0s"
    shown, rest = "", milliseconds
    for unit, size in _DURATION_UNITS.items():
        count, rest = divmod(rest, size)
        shown += f"{count}{unit}" if count else ""
    return shown


def read_size(value: object, *, minimum: int = 1) -> int:
    """Return bytes; a plain number is bytes. Raises `ValueError`."""
    amount = _plain(value)
    if amount is None and isinstance(value, str) and (found := _SIZE.fullmatch(value)):
        number, unit = found.groups()
        power = _SIZE_POWERS.get(unit[0].upper(), 0)
        amount = Decimal(number) * (1024 if "i" in unit else 1000) ** power
    if amount is None:
        raise ValueError(f"{quote(value)} is not a size; write it like 512KiB, 4MiB or 16MB")
    if amount < 0:
        raise ValueError(f"{quote(value)} is negative; a size is written like 512KiB, 4MiB or 16MB")
    if amount > MAX_SIZE:
        raise ValueError(f"{quote(value)} is too large; write at most 1TiB")
    if amount < minimum:
        raise ValueError(f"{quote(value)} is too small; write at least {show_size(minimum)}")
    return int(amount)


def show_size(size: int) -> str:
    """Return the shortest exact notation of a size."""
    for unit, power in (("TiB", 4), ("GiB", 3), ("MiB", 2), ("KiB", 1)):
        if size and size % 1024**power == 0:
            return f"{size // 1024**power}{unit}"
    return f"{size}B"


def read_count(value: object, *, minimum: int = 1, maximum: int = MAX_COUNT) -> int:
    """Return a whole number within bounds. Raises `ValueError`."""
    amount = _plain(value)
    if amount is None or amount != amount.to_integral_value():
        raise ValueError(f"{quote(value)} is not a whole number; write one from {minimum} to {maximum}")
    if not minimum <= amount <= maximum:
        raise ValueError(f"{quote(value)} is out of range; write a number from {minimum} to {maximum}")
    return int(amount)


def read_rate(value: object) -> str | None:
    """Return a rate such as `600/minute`, `None` where it is off. Raises `ValueError`."""
    if value is False or value == "off":
        return None
    if isinstance(value, str) and re.fullmatch(RATE_PATTERN, value):
        return value
    raise ValueError(
        f"{quote(value)} is not a rate; write it like 10/second, 600/minute, 1000/hour or 5000/day, or off"
    )
