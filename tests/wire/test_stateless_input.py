"""The stateless era: an upstream that asks its client during a plain call ("Multi Round-Trip Requests")."""

from __future__ import annotations

import pytest

from tests.wire.answers import Json
from tests.wire.era_upstream import FORM
from tests.wire.era_world import Eras, meanwhile, new_key
from tests.wire.scripted_upstream import Call, text, tool
from tests.wire.stateless_client import Reply, Stateless
from tests.wire.stateless_rules import MISSING_CAPABILITY, accept, retry, sampled

pytest_plugins = ["tests.wire.era_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
ELICIT: Json = {"message": "What is your name?", "requestedSchema": FORM}
SAMPLE: Json = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 10}
ROOTS: Json = {"roots": [{"uri": "file:///home", "name": "home"}]}
QUESTIONS: list[tuple[str, Json, Json]] = [
    ("elicitation/create", ELICIT, accept(name="Ada")),
    ("elicitation/create", ELICIT, {"action": "decline"}),
    ("sampling/createMessage", SAMPLE, sampled("Hello")),
    ("roots/list", {}, ROOTS),
]
REQUESTS = ["tools/call", "resources/read", "prompts/get"]


def request(key: str, method: str = "tools/call") -> tuple[Json, Json]:
    """Return the params of a request that waits for the test, and a result of it."""
    match method:
        case "resources/read":
            return {"uri": f"test://x?key={key}"}, {"contents": []}
        case "prompts/get":
            return {"name": key}, {"messages": []}
        case _:
            return tool(key, "plain"), text("done")


async def asked(eras: Eras, caller: Stateless, key: str, method: str = "tools/call") -> tuple[Call, Reply]:
    """Send a request whose upstream asks for a name, and return both sides of it."""
    params, _ = request(key, method)
    async with meanwhile(caller.ask(method, params)) as asking:
        call = await eras.upstream.called(key)
        call.ask()
        return call, await asking


@pytest.mark.parametrize("method", REQUESTS)
@pytest.mark.parametrize(("question", "params", "answer"), QUESTIONS)
async def test_a_question_during_a_plain_call_is_a_round_trip(
    eras: Eras, caller: Stateless, method: str, question: str, params: Json, answer: Json
) -> None:
    key = new_key()
    given, result = request(key, method)
    async with meanwhile(caller.ask(method, given)) as asking:
        call = await eras.upstream.called(key)
        waiting = call.ask(question, params)
        reply = await asking
    assert reply.result["resultType"] == "input_required"
    assert reply.result["requestState"]
    assert not {"ttlMs", "cacheScope"} & set(reply.result)
    (shown,) = reply.result["inputRequests"].values()
    assert shown["method"] == question
    assert shown.get("params", {}) == params
    async with meanwhile(caller.ask(method, {**given, **retry(reply.result, {question: answer})})) as again:
        assert (await waiting.answered())["result"] == answer
        call.finish(result)
        assert (await again).result["resultType"] == "complete"
    assert len(eras.upstream.calls[key]) == 1
    assert not call.is_cancelled


@pytest.mark.parametrize("method", REQUESTS)
async def test_I6_the_retry_may_come_to_another_replica(era_replicas: Eras, method: str) -> None:
    async with era_replicas.client() as here, era_replicas.twin(here) as there:
        key = new_key()
        call, reply = await asked(era_replicas, here, key, method)
        given, result = request(key, method)
        for round_ in range(2):
            answer = accept(name=str(round_))
            params = {**given, **retry(reply.result, {"elicitation/create": answer})}
            async with meanwhile((there, here)[round_].ask(method, params)) as again:
                await era_replicas.upstream.hears(lambda m, a=answer: m.get("result") == a, call.session)
                if round_ == 0:
                    call.ask()
                else:
                    call.finish(result)
                reply = await again
        assert reply.result["resultType"] == "complete"
        assert len(era_replicas.upstream.calls[key]) == 1


async def test_several_questions_at_once_are_one_round(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    async with meanwhile(caller.ask("tools/call", tool(key, "plain"))) as asking:
        call = await eras.upstream.called(key)
        waiting = [call.ask(question, params) for question, params, _ in QUESTIONS[1:]]
        reply = await asking
    assert len(reply.result["inputRequests"]) == 3
    answers = {question: answer for question, _, answer in QUESTIONS[1:]}
    params = {**tool(key, "plain"), **retry(reply.result, answers)}
    async with meanwhile(caller.ask("tools/call", params)) as again:
        for one, (_, _, answer) in zip(waiting, QUESTIONS[1:], strict=True):
            assert (await one.answered())["result"] == answer
        call.finish(text("all three"))
        assert (await again).text == "all three"


async def test_questions_one_after_another_are_rounds(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    names: list[str] = []

    def name(_: str, request: Json) -> Json:
        names.append(request["params"]["message"])
        return accept(name=request["params"]["message"])

    async with meanwhile(caller.call("plain", {"key": key}, inputs=name)) as calling:
        call = await eras.upstream.called(key)
        for number in range(3):
            question = call.ask("elicitation/create", {**ELICIT, "message": f"{number}?"})
            assert (await question.answered())["result"] == accept(name=f"{number}?")
        call.finish(text("three rounds"))
        reply = await calling
    assert reply.text == "three rounds"
    assert names == ["0?", "1?", "2?"]
    assert len(reply.rounds) == 3
    keys = [key for one in reply.rounds for key in one["inputRequests"]]
    assert len(set(keys)) == 3


async def test_missing_answers_are_asked_for_again(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    async with meanwhile(caller.ask("tools/call", tool(key, "plain"))) as asking:
        call = await eras.upstream.called(key)
        waiting = [call.ask("elicitation/create", {**ELICIT, "message": f"{n}?"}) for n in range(2)]
        first = (await asking).result
    one, other = sorted(
        first["inputRequests"], key=lambda k: first["inputRequests"][k]["params"]["message"]
    )
    part = {
        **tool(key, "plain"),
        "requestState": first["requestState"],
        "inputResponses": {one: accept(name="one"), "unexpected": {"action": "cancel"}},
    }
    second = (await caller.ask("tools/call", part)).result
    assert second["resultType"] == "input_required"
    assert second["inputRequests"] == {other: first["inputRequests"][other]}
    assert (await waiting[0].answered())["result"] == accept(name="one")
    rest = {**tool(key, "plain"), **retry(second, {"elicitation/create": accept(name="other")})}
    async with meanwhile(caller.ask("tools/call", rest)) as again:
        assert (await waiting[1].answered())["result"] == accept(name="other")
        call.finish(text("both"))
        assert (await again).text == "both"


async def test_a_retry_without_answers_is_asked_again(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    call, reply = await asked(eras, caller, key)
    bare = {**tool(key, "plain"), "requestState": reply.result["requestState"]}
    again = await caller.ask("tools/call", bare)
    assert again.result["inputRequests"] == reply.result["inputRequests"]
    assert len(eras.upstream.calls[key]) == 1
    call.finish()


async def test_an_older_state_of_the_same_call_is_good_too(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    call, first = await asked(eras, caller, key)
    bare = {**tool(key, "plain"), "requestState": first.result["requestState"]}
    await caller.ask("tools/call", bare)
    params = {**tool(key, "plain"), **retry(first.result, {"elicitation/create": accept(name="Ada")})}
    async with meanwhile(caller.ask("tools/call", params)) as again:
        await eras.upstream.hears(lambda m: m.get("result") == accept(name="Ada"), call.session)
        call.finish(text("thanks"))
        assert (await again).text == "thanks"


@pytest.mark.parametrize("answer", [{"action": "maybe"}, {}, "x", None, [], {"roots": []}])
async def test_an_answer_of_the_wrong_kind_is_refused_and_the_call_waits_on(
    eras: Eras, caller: Stateless, answer: object
) -> None:
    key = new_key()
    call, reply = await asked(eras, caller, key)
    (name,) = reply.result["inputRequests"]
    params = {
        **tool(key, "plain"),
        "requestState": reply.result["requestState"],
        "inputResponses": {name: answer},
    }
    refused = await caller.ask("tools/call", params, wrong=True)
    assert refused.refusal[:2] == (200, -32602)
    params["inputResponses"] = {name: accept(name="Ada")}
    async with meanwhile(caller.ask("tools/call", params)) as again:
        await eras.upstream.hears(lambda m: m.get("result") == accept(name="Ada"), call.session)
        call.finish(text("thanks"))
        assert (await again).text == "thanks"


@pytest.mark.parametrize("responses", [None, [], "x", 1, True])
async def test_responses_that_are_no_map_are_refused(caller: Stateless, responses: object) -> None:
    params = {**tool(new_key(), "plain"), "inputResponses": responses}
    assert (await caller.ask("tools/call", params, wrong=True)).refusal[:2] == (200, -32602)


async def test_answers_that_nobody_has_asked_for_yet_serve_when_the_question_comes(
    eras: Eras, caller: Stateless
) -> None:
    key = new_key()
    params = {**tool(key, "plain"), "inputResponses": {"not-asked": accept(name="early")}}
    async with meanwhile(caller.ask("tools/call", params)) as asking:
        call = await eras.upstream.called(key)
        assert "inputResponses" not in call.message["params"]
        call.finish(text("as ever"))
        assert (await asking).text == "as ever"


@pytest.mark.parametrize(("question", "params"), [(q, p) for q, p, _ in QUESTIONS[1:]])
async def test_nothing_is_asked_that_the_client_did_not_declare(
    eras: Eras, question: str, params: Json
) -> None:
    capability = question.split("/", maxsplit=1)[0]
    others: Json = {name: {} for name in ("elicitation", "sampling", "roots") if name != capability}
    async with eras.client(capabilities=others) as caller:
        key = new_key()
        async with meanwhile(caller.ask("tools/call", tool(key, "plain"))) as asking:
            call = await eras.upstream.called(key)
            waiting = call.ask(question, params)
            reply = await asking
        assert reply.refusal[:2] == (400, MISSING_CAPABILITY)
        assert reply.response["error"]["data"] == {"requiredCapabilities": {capability: {}}}
        assert "error" in await waiting.answered()
        await call.cancelled()


async def test_a_retry_that_declares_less_is_not_asked_for_more(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    call, reply = await asked(eras, caller, key)
    async with eras.client(caller.authorization, capabilities={"sampling": {}}) as less:
        bare = {**tool(key, "plain"), "requestState": reply.result["requestState"]}
        refused = await less.ask("tools/call", bare)
        assert refused.refusal[:2] == (400, MISSING_CAPABILITY)
    await call.cancelled()


@pytest.mark.parametrize("method", ["completion/complete", "tools/list", "resources/list"])
async def test_only_three_requests_may_be_sent_again_with_input(caller: Stateless, method: str) -> None:
    params: Json = {"inputResponses": {"x": accept(name="Ada")}, "requestState": "forged"}
    if method == "completion/complete":
        params |= {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": "p"}}
    assert (await caller.ask(method, params)).result["resultType"] == "complete"


async def test_a_call_that_may_be_a_task_is_a_task_after_its_input(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    async with meanwhile(caller.ask("tools/call", tool(key, "patient"))) as asking:
        call = await eras.upstream.called(key)
        call.ask()
        reply = await asking
    assert reply.result["resultType"] == "input_required"
    params = {**tool(key, "patient"), **retry(reply.result, {"elicitation/create": accept(name="Ada")})}
    async with meanwhile(caller.ask("tools/call", params)) as again:
        await eras.upstream.hears(lambda m: m.get("result") == accept(name="Ada"), call.session)
        call.finish(text("in time"))
        assert (await again).text == "in time"


@pytest.mark.parametrize("tasks", [True, False])
async def test_a_call_that_takes_its_time_after_its_input_becomes_a_task_where_that_was_declared(
    era_replicas: Eras, tasks: bool
) -> None:
    async with era_replicas.client() as here, era_replicas.twin(here) as there:
        key = new_key()
        given = tool(key, "unhurried")
        async with meanwhile(here.ask("tools/call", given)) as asking:
            call = await era_replicas.upstream.called(key)
            call.ask()
            reply = await asking
        params = {**given, **retry(reply.result, {"elicitation/create": accept(name="Ada")})}
        async with meanwhile(there.ask("tools/call", params, tasks=tasks)) as again:
            await era_replicas.upstream.hears(lambda m: m.get("result") == accept(name="Ada"), call.session)
            if not tasks:
                call.finish(text("the result"))
                assert (await again).text == "the result"
                return
            made = await again
        assert (await here.get(made.task_id)).result["status"] == "working"
        second = call.ask()
        (name,) = (await there.reach(made.task_id, "input_required"))["inputRequests"]
        await here.update(made.task_id, {name: accept(name="Eve")})
        assert (await second.answered())["result"] == accept(name="Eve")
        call.finish(text("as a task"))
        task = await there.reach(made.task_id, "completed")
        assert task["result"]["content"] == text("as a task")["content"]
        assert len(era_replicas.upstream.calls[key]) == 1


async def test_I8_a_repeated_retry_takes_no_task_away_that_was_announced(era_replicas: Eras) -> None:
    async with era_replicas.client() as here, era_replicas.twin(here) as there:
        key = new_key()
        given = tool(key, "unhurried")
        async with meanwhile(here.ask("tools/call", given)) as asking:
            call = await era_replicas.upstream.called(key)
            call.ask()
            reply = await asking
        params = {**given, **retry(reply.result, {"elicitation/create": accept(name="Ada")})}
        made = await there.ask("tools/call", params)
        async with meanwhile(here.ask("tools/call", params, tasks=False)) as repeated:
            call.finish(text("once"))
            assert (await repeated).text == "once"
        for client in (here, there):
            task = await client.reach(made.task_id, "completed")
            assert task["result"]["content"] == text("once")["content"]
        assert len(era_replicas.upstream.calls[key]) == 1


async def test_a_second_question_beyond_the_capabilities_is_refused_to_the_upstream(eras: Eras) -> None:
    async with eras.client(capabilities={"elicitation": {}}) as caller:
        key = new_key()
        call, reply = await asked(eras, caller, key)
        params = {**tool(key, "plain"), **retry(reply.result, {"elicitation/create": accept(name="Ada")})}
        async with meanwhile(caller.ask("tools/call", params)) as again:
            await eras.upstream.hears(lambda m: m.get("result") == accept(name="Ada"), call.session)
            assert "error" in await call.ask("sampling/createMessage", SAMPLE).answered()
            call.finish(text("without"))
            assert (await again).text == "without"


async def test_an_error_that_asks_for_a_visit_to_a_url_is_a_request_for_input(
    eras: Eras, caller: Stateless
) -> None:
    key = new_key()
    visit = {"mode": "url", "message": "Sign in.", "url": "https://example.com/in", "elicitationId": "e-1"}
    async with meanwhile(caller.ask("tools/call", tool(key, "plain"))) as asking:
        (await eras.upstream.called(key)).refuse(-32042, "Sign in first", {"elicitations": [visit]})
        reply = await asking
    (shown,) = reply.result["inputRequests"].values()
    assert shown["method"] == "elicitation/create"
    assert shown["params"] == {name: part for name, part in visit.items() if name != "elicitationId"}
    # Nothing waits upstream: the retry is a new call.
    again = {**tool(key, "plain"), **retry(reply.result, {"elicitation/create": {"action": "accept"}})}
    async with meanwhile(caller.ask("tools/call", again)) as asking:
        (await eras.upstream.called(key, 2)).finish(text("signed in"))
        assert (await asking).text == "signed in"


async def test_the_names_that_the_upstream_gave_its_questions_are_the_keys(
    eras: Eras, caller: Stateless
) -> None:
    key = new_key()
    async with meanwhile(caller.ask("tools/call", tool(key, "plain"))) as asking:
        call = await eras.upstream.called(key)
        question = call.ask()
        reply = await asking
    assert list(reply.result["inputRequests"]) == [question.ident]
    call.finish()


@pytest.mark.parametrize(("answer", "good"), [(accept(name="Ada"), True), ({"roots": []}, False)])
async def test_an_answer_that_came_with_the_request_itself_serves_at_once(
    eras: Eras, caller: Stateless, answer: Json, good: bool
) -> None:
    key = new_key()
    params = {**tool(key, "plain"), "inputResponses": {"the-name": answer}}
    async with meanwhile(caller.ask("tools/call", params)) as asking:
        call = await eras.upstream.called(key)
        call.say({"jsonrpc": "2.0", "id": "the-name", "method": "elicitation/create", "params": ELICIT})
        if not good:
            assert (await asking).refusal[:2] == (200, -32602)
            await call.cancelled()
            return
        await eras.upstream.hears(lambda m: m.get("result") == answer, call.session)
        call.finish(text("no round at all"))
        assert (await asking).text == "no round at all"


async def test_an_upstream_that_does_not_wait_for_the_answer_ends_the_call(
    eras: Eras, caller: Stateless
) -> None:
    key = new_key()
    async with meanwhile(
        caller.call("plain", {"key": key}, inputs={"elicitation/create": accept()})
    ) as asking:
        call = await eras.upstream.called(key)
        call.ask()
        call.finish(text("never mind"))
        assert (await asking).text == "never mind"
    assert len(eras.upstream.calls[key]) == 1


async def test_a_question_that_the_upstream_withdraws_is_asked_no_more(
    eras: Eras, caller: Stateless
) -> None:
    key = new_key()
    call, reply = await asked(eras, caller, key)
    (name,) = reply.result["inputRequests"]
    call.tell("notifications/cancelled", {"requestId": name})
    other = call.ask("roots/list", {})
    bare = {**tool(key, "plain"), "requestState": reply.result["requestState"]}
    again = reply
    while other.ident not in again.result["inputRequests"] or name in again.result["inputRequests"]:
        again = await caller.ask("tools/call", bare)
    late = {**bare, "inputResponses": {name: accept(name="late"), other.ident: ROOTS}}
    async with meanwhile(caller.ask("tools/call", late)) as asking:
        assert (await other.answered())["result"] == ROOTS
        call.finish(text("roots alone"))
        assert (await asking).text == "roots alone"
    assert not [m for _, m in eras.upstream.heard if m.get("id") == name]
