"""The words of the command line."""

from __future__ import annotations

import msgspec
import pytest

from gateway.client.options import Call, Tasks
from tests.warm.client_run import parse

URL = "http://127.0.0.1:8080/mcp"


def call(*words: str) -> Call:
    args = parse("call", *words)
    return args.wanted(args)


def tasks(*words: str) -> Tasks:
    args = parse("tasks", *words)
    return args.wanted(args)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("k=3", b"3"),
        ("k=1.0", b"1.0"),
        ("k=true", b"true"),
        ("k=null", b"null"),
        ('k={"a":[1]}', b'{"a":[1]}'),
        ("k=hello world", b'"hello world"'),
        ("k=", b'""'),
        ("k=a=b", b'"a=b"'),
        ("k=NaN", b'"NaN"'),
        ("k=-1", b"-1"),
        ('k="3"', b'"3"'),
        ("k=grün", '"grün"'.encode()),
        ("k:=[1, 2]", b"[1, 2]"),
    ],
)
def test_a_value_is_json_where_it_is_valid_and_else_a_string(word: str, value: bytes) -> None:
    assert bytes(call(URL, "tool", word).arguments["k"]) == value


def test_pairs_add_to_and_replace_what_args_gave() -> None:
    found = call(URL, "tool", "--args", '{"a": 1, "b": 2}', "b=3", "--task", "c=4")
    assert {name: bytes(raw) for name, raw in found.arguments.items()} == {"a": b"1", "b": b"3", "c": b"4"}
    assert found.task


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("1h", 3_600_000), ("90s", 90_000), ("500ms", 500), ("forever", None), ("0s", 0)],
)
def test_keep_alive_is_a_duration_or_forever(text: str, milliseconds: int | None) -> None:
    assert call(URL, "tool", "--task", "--keep-alive", text).keep_alive == milliseconds


def test_without_keep_alive_none_is_asked_for() -> None:
    assert call(URL, "tool", "--task").keep_alive is msgspec.UNSET


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "the following arguments are required: URL, TOOL"),
        ((URL,), "the following arguments are required: TOOL"),
        (("localhost:8080", "tool"), "is not a URL like http://127.0.0.1:8080/mcp"),
        (("ftp://x/mcp", "tool"), "is not a URL"),
        (("http://x:99999/mcp", "tool"), "is not a URL"),
        ((URL, "tool", "loose"), "'loose' is not key=value"),
        ((URL, "tool", "=3"), "is not key=value"),
        ((URL, "tool", "k:=yes"), "the value of k is not valid JSON"),
        ((URL, "tool", "--args", "[1]"), "not a JSON object"),
        ((URL, "tool", "--task", "--keep-alive", "1 fortnight"), "is not a duration"),
        ((URL, "tool", "--keep-alive", "1h"), "add --task"),
        ((URL, "tool", "--header", "no colon, secret"), "a header looks like 'Name: value'"),
        ((URL, "tool", "--header", "X: a\nY: b"), "a header looks like"),
        ((URL, "tool", "--bearer-env", "SURELY_NOT_SET"), "holds no token"),
        ((URL, "tool", "--dialect", "d"), "invalid choice: 'd'"),
        ((URL, "tool", "--nope"), "unrecognized arguments: --nope"),
    ],
)
def test_wrong_words_end_with_usage_and_exit_code_2(
    words: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        call(*words)
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert complaint in shown
    assert "usage: mcp-task-gateway call" in shown
    assert "no colon, secret" not in shown


def test_call_has_its_own_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        call("--help")
    assert ended.value.code == 0
    assert "--keep-alive" in capsys.readouterr().out


def test_detach_makes_it_a_task() -> None:
    assert call(URL, "tool", "--detach").task


@pytest.mark.parametrize(("text", "raw"), [("7", b"7"), ("-7", b"-7"), ("abc", b'"abc"'), ('"7"', b'"7"')])
def test_a_request_id_is_a_number_or_a_string(text: str, raw: bytes) -> None:
    assert tasks("cancel", URL, "t-1", "--request-id", text).request_id == raw


def test_the_request_id_is_the_task_id_unless_said_otherwise() -> None:
    assert tasks("cancel", URL, "t-1").request_id == b'"t-1"'


def test_options_of_tasks_may_stand_anywhere() -> None:
    found = tasks("get", "--session", "s", URL, "--json", "t-1", "--protocol-version", "2025-06-18")
    assert (found.task_id, found.target.session, found.target.version) == ("t-1", "s", "2025-06-18")


def test_the_dialect_is_found_out_unless_it_is_named() -> None:
    assert call(URL, "tool").target.dialect == "auto"
    assert call(URL, "tool", "--dialect", "b").target.dialect == "b"
    assert tasks("get", URL, "t-1", "--dialect", "c").target.dialect == "c"


def test_responses_are_given_by_key() -> None:
    found = tasks("update", URL, "t-1", "--input", 'k={"action":"decline"}', "--input", "l=1")
    assert {key: bytes(raw) for key, raw in found.inputs.items()} == {
        "k": b'{"action":"decline"}',
        "l": b"1",
    }


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("list", URL, "--dialect", "c"), "dialect c has no list of tasks"),
        (("delete", URL, "t", "--dialect", "b"), "dialect b cannot delete a task"),
        (("delete", URL, "t", "--dialect", "c"), "dialect c cannot delete a task"),
        (("update", URL, "t", "--dialect", "a"), "dialect a has no update"),
        (("update", URL, "t", "--dialect", "b"), "dialect b has no update"),
        (("get", URL, "t", "--dialect", "c", "--session", "s"), "dialect c has no sessions"),
    ],
)
def test_what_a_dialect_does_not_have_is_wrong_usage(
    words: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        tasks(*words)
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("words", [("get", URL), ("list", URL, "--limit", "0"), ("eat", URL), ()])
def test_wrong_words_of_tasks_are_refused(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        tasks(*words)
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err
