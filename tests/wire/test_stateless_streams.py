"""The stateless era: progress, log messages, and the end of a request's own stream (progress, logging)."""

from __future__ import annotations

import asyncio

import pytest

from tests.wire.answers import Json
from tests.wire.era_upstream import done
from tests.wire.era_world import Eras, meanwhile, new_key
from tests.wire.scripted_upstream import Call, text, tool
from tests.wire.stateless_client import Stateless
from tests.wire.stateless_rules import META, accept, retry

pytest_plugins = ["tests.wire.era_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


@pytest.fixture(scope="session")
def eras(era_alone: Eras) -> Eras:
    """Serve on one store: nothing here is kept in it."""
    return era_alone


def progress(call: Call, done: float, **more: object) -> None:
    """Tell of progress under the token that the upstream was given."""
    call.tell(
        "notifications/progress", {"progressToken": call.meta["progressToken"], "progress": done, **more}
    )


def log(call: Call, level: str, data: object = "x") -> None:
    call.tell("notifications/message", {"level": level, "logger": "l", "data": data})


@pytest.mark.parametrize("token", [0, 1, "mine", "", "é", 2**53 - 1])
async def test_progress_comes_under_the_clients_own_token(
    eras: Eras, caller: Stateless, token: int | str
) -> None:
    key = new_key()
    async with meanwhile(caller.call("plain", {"key": key}, progress=token)) as asking:
        call = await eras.upstream.called(key)
        for number in range(3):
            progress(call, number + 0.5, total=3, message=f"{number}")
        call.finish(text("done"))
        reply = await asking
    assert [note["params"] for note in reply.notifications] == [
        {"progressToken": token, "progress": n + 0.5, "total": 3, "message": f"{n}"} for n in range(3)
    ]
    assert all(type(note["params"]["progressToken"]) is type(token) for note in reply.notifications)


async def test_progress_that_was_not_asked_for_does_not_come(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    async with meanwhile(caller.call("plain", {"key": key})) as asking:
        call = await eras.upstream.called(key)
        call.tell(
            "notifications/progress", {"progressToken": call.meta.get("progressToken", 1), "progress": 1}
        )
        call.finish(text("done"))
        assert (await asking).notifications == []


async def test_two_requests_with_one_token_get_each_its_own_progress(eras: Eras, caller: Stateless) -> None:
    one, two = new_key(), new_key()
    async with (
        meanwhile(caller.call("plain", {"key": one}, progress="same")) as first,
        meanwhile(caller.call("plain", {"key": two}, progress="same")) as second,
    ):
        calls = [await eras.upstream.called(key) for key in (one, two)]
        assert calls[0].meta["progressToken"] != calls[1].meta["progressToken"]
        for number, call in enumerate(calls):
            progress(call, 1, message=str(number))
            call.finish(text(str(number)))
        for number, asking in enumerate((first, second)):
            reply = await asking
            assert [note["params"]["message"] for note in reply.notifications] == [str(number)]
            assert reply.text == str(number)


@pytest.mark.parametrize("level", LEVELS)
async def test_log_messages_come_at_the_level_that_was_asked_for(
    eras: Eras, caller: Stateless, level: str
) -> None:
    key = new_key()
    more = {"_meta": {f"{META}logLevel": level}}
    async with meanwhile(caller.call("plain", {"key": key}, more=more)) as asking:
        call = await eras.upstream.called(key)
        for number, one in enumerate(LEVELS):
            log(call, one, {"n": number})
        call.finish(text("done"))
        reply = await asking
    assert [note["params"]["level"] for note in reply.notifications] == LEVELS[LEVELS.index(level) :]
    assert {note["method"] for note in reply.notifications} == {"notifications/message"}


async def test_log_messages_that_were_not_asked_for_do_not_come(eras: Eras, caller: Stateless) -> None:
    quiet, loud = new_key(), new_key()
    more = {"_meta": {f"{META}logLevel": "debug"}}
    async with (
        meanwhile(caller.call("plain", {"key": loud}, more=more)) as asking_loud,
        meanwhile(caller.call("plain", {"key": quiet}, progress=1)) as asking_quiet,
    ):
        for key in (quiet, loud):
            call = await eras.upstream.called(key)
            log(call, "emergency", key)
            call.finish(text(key))
        assert (await asking_quiet).notifications == []
        assert [note["params"]["data"] for note in (await asking_loud).notifications] == [loud]


@pytest.mark.one_replica("each replica has upstream sessions of its own")
async def test_the_upstream_is_asked_to_log_as_much_as_the_most_verbose_request(
    eras: Eras, caller: Stateless
) -> None:
    sessions: set[str] = set()
    for level, wanted in [
        ("error", ["error"]),
        ("debug", ["error", "debug"]),
        ("info", ["error", "debug"]),
    ]:
        key = new_key()
        more = {"_meta": {f"{META}logLevel": level}}
        async with meanwhile(caller.call("plain", {"key": key}, more=more)) as asking:
            call = await eras.upstream.called(key)
            sessions.add(call.session)
            call.finish()
            await asking
        asked = eras.upstream.asked("logging/setLevel", call.session)
        assert [one.message["params"]["level"] for one in asked] == wanted
    assert len(sessions) == 1


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("notifications/tools/list_changed", {}),
        ("notifications/resources/updated", {"uri": "test://static"}),
        ("notifications/cancelled", {"requestId": "x"}),
        ("notifications/com.example/own", {"a": 1}),
        ("notifications/elicitation/complete", {"elicitationId": "x"}),
        ("notifications/progress", {"progress": 1}),
        ("notifications/message", {"level": "loud", "data": 1}),
    ],
)
async def test_nothing_else_comes_on_the_stream_of_a_request(eras: Eras, method: str, params: Json) -> None:
    async with eras.client(log_level="debug") as caller:
        key = new_key()
        async with meanwhile(caller.call("plain", {"key": key}, progress=1)) as asking:
            call = await eras.upstream.called(key)
            call.tell(method, params)
            progress(call, 1)
            call.finish(text("done"))
            reply = await asking
        notes = [note["method"] for note in reply.notifications]
        own = [method] if method == "notifications/progress" else []
        assert notes in (["notifications/progress"], [*own, "notifications/progress"])
        assert all(note["params"].get("progressToken") == 1 for note in reply.notifications)


async def test_progress_goes_on_after_a_round_of_input(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    async with meanwhile(caller.call("plain", {"key": key}, progress="first")) as asking:
        call = await eras.upstream.called(key)
        call.ask()
        asked = (await asking).result
    more = retry(asked, {"elicitation/create": accept(name="Ada")})
    async with meanwhile(caller.call("plain", {"key": key}, progress="second", more=more)) as asking:
        await eras.upstream.hears(lambda m: m.get("result") == accept(name="Ada"), call.session)
        progress(call, 1, message="after")
        call.finish(text("done"))
        reply = await asking
    # It may be left out, but what comes is under the token of the request whose stream it is.
    assert all(note["params"]["progressToken"] == "second" for note in reply.notifications)


@pytest.mark.parametrize("begun", [False, True])
async def test_I11_closing_the_stream_cancels_the_call_upstream(
    eras: Eras, caller: Stateless, begun: bool
) -> None:
    key = new_key()
    params = {**tool(key, "plain"), "_meta": {"progressToken": 1}}
    async with meanwhile(caller.begin("tools/call", params)) as asking:
        call = await eras.upstream.called(key)
        if begun:
            progress(call, 1)
            async with await asking as answer:
                await answer.next()
        else:
            asking.cancel()
    await call.cancelled()


@pytest.mark.parametrize("begun", [False, True])
async def test_I11_closing_the_stream_closes_that_of_an_upstream_of_the_same_era(
    eras: Eras, begun: bool
) -> None:
    async with eras.client(name="modern") as caller:
        key = new_key()
        params = {**tool(key, "plain"), "_meta": {"progressToken": 1}}
        async with meanwhile(caller.begin("tools/call", params)) as asking:
            call = await eras.upstream.called(key)
            if begun:
                progress(call, 1)
                async with await asking as answer:
                    await answer.next()
            else:
                asking.cancel()
        async with asyncio.timeout(10):
            await call.gone.wait()


async def test_I11_a_client_that_leaves_during_a_retry_cancels_the_call(
    eras: Eras, caller: Stateless
) -> None:
    key = new_key()
    async with meanwhile(caller.ask("tools/call", tool(key, "plain"))) as asking:
        call = await eras.upstream.called(key)
        call.ask()
        asked = (await asking).result
    params = {**tool(key, "plain"), **retry(asked, {"elicitation/create": accept(name="Ada")})}
    async with meanwhile(caller.begin("tools/call", params)) as asking:
        await eras.upstream.hears(lambda m: m.get("result") == accept(name="Ada"), call.session)
        asking.cancel()
    await call.cancelled()


async def test_I11_a_client_that_leaves_before_its_call_is_a_task_cancels_it(
    eras: Eras, caller: Stateless
) -> None:
    key = new_key()
    async with meanwhile(caller.begin("tools/call", tool(key, "patient"))) as asking:
        call = await eras.upstream.called(key)
        asking.cancel()
    await call.cancelled()


async def test_a_call_that_has_ended_is_not_cancelled(eras: Eras, caller: Stateless) -> None:
    key, later = new_key(), new_key()
    async with meanwhile(caller.ask("tools/call", tool(key, "plain"))) as asking:
        call = await eras.upstream.called(key)
        call.finish(text("over"))
        await asking
    async with meanwhile(caller.begin("tools/call", tool(later, "plain"))) as asking:
        other = await eras.upstream.called(later)
        asking.cancel()
    await other.cancelled()
    assert not call.is_cancelled


async def test_the_events_of_an_upstream_of_the_same_era_come_as_they_are(eras: Eras) -> None:
    async with eras.client(name="modern", log_level="info") as caller:
        key = new_key()
        async with meanwhile(caller.call("plain", {"key": key}, progress="p")) as asking:
            call = await eras.upstream.called(key)
            assert call.meta["progressToken"] == "p"
            progress(call, 1, message="one")
            log(call, "info", {"n": 1})
            call.finish(done("native"))
            reply = await asking
        assert [note["method"] for note in reply.notifications] == [
            "notifications/progress",
            "notifications/message",
        ]
        assert reply.text == "native"


async def test_a_question_after_progress_ends_the_stream(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    async with meanwhile(caller.call("plain", {"key": key}, progress=1)) as asking:
        call = await eras.upstream.called(key)
        progress(call, 1)
        call.ask()
        reply = await asking
    assert [note["method"] for note in reply.notifications] == ["notifications/progress"]
    assert reply.result["resultType"] == "input_required"
    assert not call.is_cancelled
    call.finish()


async def test_a_refusal_after_progress_is_the_last_message_of_the_stream(eras: Eras) -> None:
    async with eras.client(capabilities={}) as caller:
        key = new_key()
        async with meanwhile(caller.call("plain", {"key": key}, progress=1)) as asking:
            call = await eras.upstream.called(key)
            progress(call, 1)
            call.ask()
            reply = await asking
        assert reply.notifications
        assert reply.refusal[:2] == (200, -32021)
        await call.cancelled()
