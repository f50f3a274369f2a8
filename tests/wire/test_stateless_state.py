"""The stateless era: `requestState` in the hands of an attacker ("Multi Round-Trip Requests", 4 and 5)."""

from __future__ import annotations

import base64

import pytest

from tests.wire.answers import Json
from tests.wire.era_upstream import EraUpstream
from tests.wire.era_world import Eras, configuration, deployed, meanwhile, new_key
from tests.wire.scripted_upstream import Call, text, tool
from tests.wire.stateless_client import Reply, Stateless
from tests.wire.stateless_rules import INVALID_PARAMS, accept, retry

pytest_plugins = ["tests.wire.era_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
ANSWER: Json = {"elicitation/create": accept(name="Ada")}


async def asked(eras: Eras, caller: Stateless, key: str) -> tuple[Call, Reply]:
    async with meanwhile(caller.ask("tools/call", tool(key, "plain"))) as asking:
        call = await eras.upstream.called(key)
        call.ask()
        return call, await asking


def changed(state: str) -> list[str]:
    """Return what an attacker makes of a state."""
    middle = len(state) // 2
    flipped = state[:middle] + ("A" if state[middle] != "A" else "B") + state[middle + 1 :]
    return [
        flipped,
        state[:-1],
        state + "A",
        state + "=",
        state[1:],
        state[::-1],
        "",
        "x",
        "null",
        "é" * 10,
        "A" * 100_000,
        base64.urlsafe_b64encode(b"\0" * 64).decode(),
    ]


async def test_a_forged_state_is_refused_and_runs_nothing(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    call, reply = await asked(eras, caller, key)
    for state in changed(reply.result["requestState"]):
        params = {**tool(key, "plain"), **retry(reply.result, ANSWER), "requestState": state}
        status, code, words = (await caller.ask("tools/call", params)).refusal
        assert (status, code) == (200, INVALID_PARAMS), state
        assert "requestState" in words
    assert len(eras.upstream.calls[key]) == 1
    assert not call.is_cancelled
    call.finish()


@pytest.mark.parametrize("state", [None, 1, True, [], {}])
async def test_a_state_that_is_no_string_is_refused(caller: Stateless, state: object) -> None:
    params = {**tool(new_key(), "plain"), "requestState": state}
    assert (await caller.ask("tools/call", params, wrong=True)).refusal[:2] == (200, INVALID_PARAMS)


# Nobody cannot be told from nobody.
@pytest.mark.parametrize(("owner", "thief"), [(None, "Bearer thief"), ("", None), ("", "Bearer thief")])
async def test_I7_a_state_is_nobody_elses(eras: Eras, owner: str | None, thief: str | None) -> None:
    async with eras.client(owner) as one, eras.client(thief, replica=1) as two:
        key = new_key()
        call, reply = await asked(eras, one, key)
        params = {**tool(key, "plain"), **retry(reply.result, ANSWER)}
        stolen = await two.ask("tools/call", params)
        assert stolen.refusal[:2] == (200, INVALID_PARAMS)
        forged = await two.ask("tools/call", {**params, "requestState": "forged"})
        assert stolen.refusal == forged.refusal
        async with meanwhile(one.ask("tools/call", params)) as again:
            await eras.upstream.hears(lambda m: m.get("result") == accept(name="Ada"), call.session)
            call.finish(text("mine"))
            assert (await again).text == "mine"


async def test_a_state_belongs_to_its_request(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    call, reply = await asked(eras, caller, key)
    more = retry(reply.result, ANSWER)
    others: list[Json] = [
        {**tool(new_key(), "plain"), **more},
        {**tool(key, "plain_other"), **more},
        {**tool(key, "plain", extra=1), **more},
        {"name": "plain", "arguments": {}, **more},
    ]
    for params in others:
        assert (await caller.ask("tools/call", params)).refusal[:2] == (200, INVALID_PARAMS)
    refused = await caller.ask("prompts/get", {"name": "plain", **more})
    assert refused.refusal[:2] == (200, INVALID_PARAMS)
    assert len(eras.upstream.calls[key]) == 1
    # Another spelling of the same is the same.
    same = {"arguments": {"key": key}, **more, "name": "plain", "_meta": {"com.example/trace": "new"}}
    async with meanwhile(caller.ask("tools/call", same)) as again:
        await eras.upstream.hears(lambda m: m.get("result") == accept(name="Ada"), call.session)
        call.finish(text("the same"))
        assert (await again).text == "the same"


async def test_a_state_belongs_to_its_upstream(eras: Eras) -> None:
    async with eras.client("Bearer both") as here, eras.client("Bearer both", "shared") as there:
        key = new_key()
        call, reply = await asked(eras, here, key)
        params = {**tool(key, "plain"), **retry(reply.result, ANSWER)}
        assert (await there.ask("tools/call", params)).refusal[:2] == (200, INVALID_PARAMS)
        call.finish()


async def test_a_state_is_of_no_use_after_the_end_of_its_call(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    call, reply = await asked(eras, caller, key)
    params = {**tool(key, "plain"), **retry(reply.result, ANSWER)}
    async with meanwhile(caller.ask("tools/call", params)) as again:
        await eras.upstream.hears(lambda m: m.get("result") == accept(name="Ada"), call.session)
        call.finish(text("once"))
        assert (await again).text == "once"
    for _ in range(2):
        late = await caller.ask("tools/call", params)
        while "result" in late.response:
            # The end may be told once more until it is forgotten, but nothing runs again.
            assert late.text == "once"
            late = await caller.ask("tools/call", params)
        assert late.refusal[:2] == (200, INVALID_PARAMS)
    assert len(eras.upstream.calls[key]) == 1


async def test_I5_a_retry_that_never_comes_frees_the_call(eras: Eras) -> None:
    async with eras.client(name="hasty") as caller:
        key = new_key()
        call, reply = await asked(eras, caller, key)
        await call.cancelled()
        params = {**tool(key, "plain"), **retry(reply.result, ANSWER)}
        late = await caller.ask("tools/call", params)
        while "expired" not in late.refusal[2]:
            # The wait began with the question, and the state with the answer, which came after it.
            assert late.refusal[1] in (INVALID_PARAMS, -32603)
            late = await caller.ask("tools/call", params)
        assert late.refusal[:2] == (200, INVALID_PARAMS)
        assert len(eras.upstream.calls[key]) == 1


async def test_a_state_is_good_at_replicas_of_the_same_secret_only(
    era_upstream: EraUpstream, eras: Eras, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = configuration(era_upstream, "memory://", secret="another secret than that")
    place = tmp_path_factory.mktemp("elsewhere")
    async with deployed(era_upstream, config, place) as elsewhere, eras.client("Bearer x") as here:
        key = new_key()
        call, reply = await asked(eras, here, key)
        async with elsewhere.client("Bearer x") as there:
            params = {**tool(key, "plain"), **retry(reply.result, ANSWER)}
            assert (await there.ask("tools/call", params)).refusal[:2] == (200, INVALID_PARAMS)
        call.finish()


async def test_nothing_of_the_call_can_be_read_in_a_state(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    call, reply = await asked(eras, caller, key)
    state = reply.result["requestState"]
    raw = base64.urlsafe_b64decode(state + "=" * (-len(state) % 4))
    assert key.encode() not in raw
    assert b"plain" not in raw
    call.finish()
