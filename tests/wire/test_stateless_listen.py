"""The stateless era: changes of lists and resources on `subscriptions/listen` (subscriptions)."""

from __future__ import annotations

import pytest

from tests.wire.answers import Json
from tests.wire.era_upstream import LISTENING
from tests.wire.era_world import Eras, meanwhile, new_key
from tests.wire.scripted_upstream import tool
from tests.wire.stateless_client import Stateless, Subscription
from tests.wire.stateless_rules import SUBSCRIPTION

pytest_plugins = ["tests.wire.era_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
URI = "test://static"
LISTS = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}
ALL: Json = {**dict.fromkeys(LISTS, True), "resourceSubscriptions": [URI]}


@pytest.fixture(scope="session")
def eras(era_alone: Eras) -> Eras:
    """Serve on one store: nothing here is kept in it."""
    return era_alone


def session_of(eras: Eras, caller: Stateless) -> str:
    """Return the upstream's session of a client that has just one."""
    (opening,) = {
        one.session
        for one in eras.upstream.asked("initialize")
        if one.headers.get("authorization") == caller.authorization
        and one.session not in eras.upstream.deleted
    }
    return opening


async def next_of(changes: Subscription) -> Json:
    message = await changes.next()
    assert message is not None
    return message


@pytest.mark.parametrize("field", list(LISTS))
async def test_a_list_that_changes_is_told_to_who_asked_for_it(
    eras: Eras, caller: Stateless, field: str
) -> None:
    async with caller.listen({field: True}) as changes:
        assert changes.acknowledged == {field: True}
        session = session_of(eras, caller)
        for method in LISTS.values():
            eras.upstream.beside(session, method)
        eras.upstream.beside(session, "notifications/resources/updated", {"uri": URI})
        eras.upstream.beside(session, "notifications/message", {"level": "error", "data": 1})
        assert (await next_of(changes))["method"] == LISTS[field]
        # Nothing that was not asked for came between the two.
        eras.upstream.beside(session, LISTS[field])
        assert (await next_of(changes))["method"] == LISTS[field]


async def test_everything_at_once_comes_in_order(eras: Eras, caller: Stateless) -> None:
    async with caller.listen(ALL, ident="all") as changes:
        assert changes.acknowledged == ALL
        session = session_of(eras, caller)
        sent = [*LISTS.values(), "notifications/resources/updated"]
        for method in sent:
            params = {"uri": URI} if method.endswith("updated") else {}
            eras.upstream.beside(session, method, params)
        got = [await next_of(changes) for _ in sent]
        assert [message["method"] for message in got] == sent
        assert {message["params"]["_meta"][SUBSCRIPTION] for message in got} == {"all"}
        assert got[-1]["params"]["uri"] == URI


async def test_a_resource_is_subscribed_to_at_the_upstream_and_given_up_at_the_end(
    eras: Eras, caller: Stateless
) -> None:
    async with caller.listen({"resourceSubscriptions": [URI, "test://other"]}) as changes:
        assert set(changes.acknowledged["resourceSubscriptions"]) == {URI, "test://other"}
        session = session_of(eras, caller)
        asked = eras.upstream.asked("resources/subscribe", session)
        assert {one.message["params"]["uri"] for one in asked} == {URI, "test://other"}
        for uri in ("test://foreign", URI, "test://static/below", "test://other"):
            eras.upstream.beside(session, "notifications/resources/updated", {"uri": uri})
        uris = [(await next_of(changes))["params"]["uri"] for _ in range(3)]
        assert uris == [URI, "test://static/below", "test://other"]
    await eras.upstream.until(lambda: len(eras.upstream.asked("resources/unsubscribe", session)) == 2)


async def test_a_resource_stays_subscribed_to_while_somebody_listens(eras: Eras, caller: Stateless) -> None:
    async with caller.listen({"resourceSubscriptions": [URI]}) as one:
        session = session_of(eras, caller)
        async with caller.listen({"resourceSubscriptions": [URI]}):
            assert len(eras.upstream.asked("resources/subscribe", session)) == 1
        eras.upstream.beside(session, "notifications/resources/updated", {"uri": URI})
        assert (await next_of(one))["params"]["uri"] == URI
        assert not eras.upstream.asked("resources/unsubscribe", session)
    await eras.upstream.until(lambda: eras.upstream.asked("resources/unsubscribe", session))


async def test_a_change_that_comes_on_the_stream_of_a_call_is_told_too(
    eras: Eras, caller: Stateless
) -> None:
    async with caller.listen({"toolsListChanged": True}) as changes:
        key = new_key()
        async with meanwhile(caller.ask("tools/call", tool(key, "plain"))) as asking:
            call = await eras.upstream.called(key)
            call.tell("notifications/tools/list_changed", {})
            call.finish()
            assert (await asking).notifications == []
        assert (await next_of(changes))["method"] == "notifications/tools/list_changed"


async def test_a_session_that_is_lost_is_made_anew_and_everything_said_to_have_changed(
    eras: Eras, caller: Stateless
) -> None:
    async with caller.listen(ALL) as changes:
        first = session_of(eras, caller)
        await eras.upstream.forget(first)
        missed = {(await next_of(changes))["method"] for _ in range(4)}
        assert missed == {*LISTS.values(), "notifications/resources/updated"}
        second = session_of(eras, caller)
        assert second != first
        eras.upstream.beside(second, "notifications/tools/list_changed")
        assert (await next_of(changes))["method"] == "notifications/tools/list_changed"


@pytest.mark.parametrize("wanted", [{}, dict.fromkeys(LISTS, False), {"resourceSubscriptions": []}])
async def test_a_subscription_to_nothing_is_acknowledged_and_quiet(
    eras: Eras, caller: Stateless, wanted: Json
) -> None:
    async with caller.listen(wanted) as changes:
        assert not any(changes.acknowledged.values())


@pytest.mark.parametrize("ident", [0, 1, "", "seven", "7"])
async def test_the_acknowledgment_carries_the_id_of_the_request(
    caller: Stateless, ident: int | str
) -> None:
    # The client checks value and type of it in each message.
    async with caller.listen({"toolsListChanged": True}, ident=ident) as changes:
        assert changes.acknowledged == {"toolsListChanged": True}


@pytest.mark.parametrize(
    "wanted",
    [
        None,
        [],
        "x",
        {"toolsListChanged": 1},
        {"promptsListChanged": "true"},
        {"resourcesListChanged": None},
        {"resourceSubscriptions": "test://static"},
        {"resourceSubscriptions": [1]},
        {"resourceSubscriptions": {}},
        {"resourceSubscriptions": [f"test://{n}" for n in range(10_000)]},
    ],
)
async def test_a_filter_that_is_none_is_refused(caller: Stateless, wanted: object) -> None:
    reply = await caller.ask(LISTENING, {"notifications": wanted}, wrong=True)
    assert reply.refusal[:2] == (200, -32602)
    assert (await caller.ask(LISTENING, {}, wrong=True)).refusal[:2] == (200, -32602)


async def test_what_the_upstream_cannot_tell_of_is_left_out(eras: Eras) -> None:
    async with eras.client(name="poor") as caller, caller.listen(ALL) as changes:
        assert not any(changes.acknowledged.values())


async def test_kinds_that_nobody_knows_are_left_out(caller: Stateless) -> None:
    wanted = {"toolsListChanged": True, "com.example/own": True}
    async with caller.listen(wanted) as changes:
        assert changes.acknowledged == {"toolsListChanged": True}


@pytest.mark.one_replica("each replica has upstream sessions of its own")
async def test_two_subscriptions_of_one_client_share_one_stream_of_the_upstream(
    eras: Eras, caller: Stateless
) -> None:
    async with (
        caller.listen({"toolsListChanged": True}, ident=1) as tools,
        caller.listen({"promptsListChanged": True}, ident="1") as prompts,
    ):
        session = session_of(eras, caller)
        assert eras.upstream.listens(session) == 1
        eras.upstream.beside(session, "notifications/prompts/list_changed")
        eras.upstream.beside(session, "notifications/tools/list_changed")
        assert (await next_of(tools))["method"] == "notifications/tools/list_changed"
        assert (await next_of(prompts))["method"] == "notifications/prompts/list_changed"


async def test_I7_changes_in_one_clients_session_are_not_told_to_another(
    eras: Eras, caller: Stateless
) -> None:
    async with (
        eras.client() as other,
        caller.listen({"resourceSubscriptions": [URI]}) as mine,
        other.listen({"resourceSubscriptions": [URI]}) as theirs,
    ):
        one, two = session_of(eras, caller), session_of(eras, other)
        eras.upstream.beside(one, "notifications/resources/updated", {"uri": URI, "_meta": {"of": "one"}})
        eras.upstream.beside(two, "notifications/resources/updated", {"uri": URI, "_meta": {"of": "two"}})
        assert (await next_of(mine))["params"]["_meta"]["of"] == "one"
        assert (await next_of(theirs))["params"]["_meta"]["of"] == "two"


async def test_an_upstream_of_the_same_era_is_listened_to_by_a_subscription(eras: Eras) -> None:
    async with eras.client(name="modern") as caller:
        key = LISTENING
        number = len(eras.upstream.calls[key])
        opening = caller.listen(ALL)
        async with meanwhile(opening.__aenter__()) as entering:
            call = await eras.upstream.called(key, number + 1)
            assert call.message["params"]["notifications"] == ALL
            meta = {SUBSCRIPTION: call.ident}
            call.tell(
                "notifications/subscriptions/acknowledged",
                {"_meta": meta, "notifications": {"toolsListChanged": True}},
            )
            changes = await entering
            assert changes.acknowledged["toolsListChanged"] is True
            call.tell("notifications/tools/list_changed", {"_meta": meta})
            assert (await next_of(changes))["method"] == "notifications/tools/list_changed"
            await opening.__aexit__(None, None, None)
        await eras.upstream.until(call.gone.is_set)
