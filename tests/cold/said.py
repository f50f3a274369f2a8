"""Lists what a text demands: every sentence with a word of RFC 2119, under its section.

Run on a page of the protocol it shows whether a manifest has left something out:
`python -m tests.cold.said PAGE.md`. The pages themselves are not kept here.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

# What only allows something (MAY, OPTIONAL) binds nobody.
WORDS: Final = re.compile(r"\b(?:(?:MUST|SHALL|SHOULD)(?: NOT)?|REQUIRED|(?:NOT )?RECOMMENDED)\b")
# What stands above the first heading.
TOP: Final = "Top"
_HEADING: Final = re.compile(r"(#{1,6})\s+(.*)")
_ITEM: Final = re.compile(r"\s*([-*]|\d+\.)\s+")
_COMMENT: Final = re.compile(r"\s*(//|/?\*+/?)\s?")
_MARKS: Final = re.compile(r"\*\*|__|`|</?\w[^>]*>|\\|^\s*>\s")
_BLOCK: Final = re.compile(r"</?(?:li|ul|ol|br|p)\b[^>]*>")
_ITALIC: Final = re.compile(r"(?<!\w)_(\w+)_(?!\w)")
_LINK: Final = re.compile(r"\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])")
_END: Final = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)\s+(?=[A-Z\"(_])")
_RULE: Final = re.compile(r"[\s|:-]*")


def words_of(sentence: str) -> Counter[str]:
    """Return how often a sentence has each word of RFC 2119."""
    return Counter(WORDS.findall(sentence))


def sentences(text: str) -> Iterator[tuple[str, str]]:
    """Yield section and sentence of all that a page (Markdown, MDX) demands, in order.

    A section whose title comes more than once has the one above it in its name.
    """
    blocks = [(path, _plain(block)) for path, block in _blocks(text) if block.strip()]
    paths = {path for path, _ in _blocks(text)}
    titles = Counter(path[-1] for path in paths if path)
    for path, block in blocks:
        section = ": ".join(path[-2:] if path and titles[path[-1]] > 1 else path[-1:]) or TOP
        for sentence in _END.split(block):
            if WORDS.search(sentence):
                yield section, sentence.strip()


def counted(text: str) -> dict[str, dict[str, int]]:
    """Return how often each section of a page says each word."""
    found: dict[str, Counter[str]] = {}
    for section, sentence in sentences(text):
        found.setdefault(section, Counter()).update(words_of(sentence))
    return {section: dict(sorted(words.items())) for section, words in found.items()}


def _plain(block: str) -> str:
    block = _ITALIC.sub(r"\1", block)
    block = _MARKS.sub("", _BLOCK.sub(" ", _LINK.sub(r"\1", block)))
    return re.sub(r"\s+", " ", block).strip()


def _blocks(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the headings above and the text of each paragraph, item, row of a table, comment in code."""
    path: tuple[str, ...] = ()
    kept, fenced = "", False
    for line in [*text.splitlines(), ""]:
        fence = line.lstrip().startswith("```")
        heading = None if fenced else _HEADING.fullmatch(line.strip())
        table = not fenced and line.lstrip().startswith("|")
        item = not fenced and _ITEM.match(line)
        if not (fence or heading or table or item) and _goes_on(line, fenced=fenced):
            kept = f"{kept} {_COMMENT.sub('', line) if fenced else line}"
            continue
        yield path, kept
        kept = _ITEM.sub("", line, count=1) if item else ""
        if fence:
            fenced = not fenced
        elif heading is not None:
            path = (*path[: len(heading[1]) - 1], _plain(heading[2]))
        elif table and not _RULE.fullmatch(line):
            yield path, "; ".join(cell.strip() for cell in line.strip().strip("|").split("|"))
    yield path, kept


def _goes_on(line: str, *, fenced: bool) -> bool:
    return bool(_COMMENT.match(line)) if fenced else bool(line.strip())


if __name__ == "__main__":
    for at, said in sentences(Path(sys.argv[1]).read_text(encoding="utf-8")):
        sys.stdout.write(f"{at}: {said}\n")
