"""Every MUST and SHOULD of the newer texts is held by a vector or a test, and every vector holds one."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from tests.cold.manifests import MANIFESTS, Manifest, Rule, exists, places
from tests.cold.said import counted, sentences, words_of
from tests.cold.traces import files, read

LETTERS: Final = sorted(MANIFESTS)
RULES: Final = [
    pytest.param(rule, id=f"{letter}: {rule.at[0]}: {rule.says[:60]}")
    for letter in LETTERS
    for rule in MANIFESTS[letter].rules
]
VECTORS: Final = [(letter, path.name) for letter in LETTERS for path in files(letter)]
PAGE: Final = """# Page
Servers **MUST** one, e.g. this. They MAY two. Servers **MUST NOT** three
and [go on](/here).
## First
### Response
1. Items **SHOULD**
   go on.
2. And **SHOULD NOT**.
| Client | Server |
| ------ | ------ |
| MUST a | MUST b |
## Second
### Response
```ts
// The field MUST be
// there.
const MUST = 1;
```
A value is **REQUIRED**.
"""


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_held_by_what_exists(rule: Rule) -> None:
    assert [holder for holder in rule.holders if not exists(holder)] == []
    assert len(set(rule.held_by)) == len(rule.held_by)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_that_binds_a_server_is_held(rule: Rule) -> None:
    """What binds clients alone has a reason instead, and so may a SHOULD, which knows exceptions."""
    parts = rule.items or [rule]
    bound = rule.who in ("server", "both") and words_of(rule.says).keys() & {"MUST", "MUST NOT", "REQUIRED"}
    for part in parts:
        assert part.held_by or (part.why and not bound), f"nothing holds {part.says}"


@pytest.mark.parametrize("letter", LETTERS)
def test_no_sentence_of_a_text_is_left_out(letter: str) -> None:
    manifest = MANIFESTS[letter]
    found: dict[str, Counter[str]] = {}
    for rule in manifest.rules:
        for at in rule.at:
            found.setdefault(at, Counter()).update(words_of(rule.says))
    wanted = {
        f"{page}: {section}": words
        for page, text in manifest.pages.items()
        for section, words in text.said.items()
    }
    assert {at: dict(sorted(words.items())) for at, words in found.items()} == wanted


@pytest.mark.parametrize("letter", LETTERS)
def test_no_rule_is_there_twice(letter: str) -> None:
    named = [(at, rule.says) for rule in MANIFESTS[letter].rules for at in set(rule.at)]
    assert len(set(named)) == len(named)


@pytest.mark.parametrize("letter", LETTERS)
def test_what_is_kept_beside_the_rules_exists_too(letter: str) -> None:
    for also in MANIFESTS[letter].also:
        assert also.held_by
        assert [holder for holder in also.held_by if not exists(holder)] == []


@pytest.mark.parametrize(("letter", "name"), VECTORS)
def test_a_vector_holds_a_rule_of_its_section(letter: str, name: str) -> None:
    [path] = [path for path in files(letter) if path.name == name]
    manifest, rule = MANIFESTS[letter], read(path).rule
    own = {rule, *[f"{page}: {rule}" for page in manifest.pages]}
    assert own & set(places(manifest, name)), f"no rule of {rule!r} names {name}"


def test_a_name_that_does_not_exist_is_noticed() -> None:
    assert exists("tests/cold/test_manifests.py::test_a_name_that_does_not_exist_is_noticed")
    assert exists("b_result_retrieval.json")
    assert not exists("tests/cold/test_manifests.py::test_that_nobody_wrote")
    assert not exists("tests/cold/test_nowhere.py::test_a")
    assert not exists("b_nowhere.json")
    assert not exists("manifest_b.json")
    assert not exists("../tests/cold/test_manifests.py::test_a")


def test_a_manifest_that_forgets_a_word_is_noticed() -> None:
    found = Counter(word for _, sentence in sentences(PAGE) for word in words_of(sentence).elements())
    assert found == {"MUST": 4, "MUST NOT": 1, "SHOULD": 1, "SHOULD NOT": 1, "REQUIRED": 1}


def test_sentences_are_found_in_text_lists_tables_and_code() -> None:
    assert list(sentences(PAGE)) == [
        ("Page", "Servers MUST one, e.g. this."),
        ("Page", "Servers MUST NOT three and go on."),
        ("First: Response", "Items SHOULD go on."),
        ("First: Response", "And SHOULD NOT."),
        ("First: Response", "MUST a; MUST b"),
        ("Second: Response", "The field MUST be there."),
        ("Second: Response", "A value is REQUIRED."),
    ]
    assert counted(PAGE)["First: Response"] == {"MUST": 2, "SHOULD": 1, "SHOULD NOT": 1}


def test_every_manifest_names_where_its_texts_are_published() -> None:
    texts = [page for manifest in MANIFESTS.values() for page in _pages(manifest)]
    assert all(source.startswith("modelcontextprotocol/") for source in texts)
    assert len(set(texts)) == len(texts)


def _pages(manifest: Manifest) -> list[str]:
    return [page.source for page in manifest.pages.values()]
