"""Calls of the stateless era over an upstream of either: plain, held for input, or a task after a while."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Final

import msgspec

from gateway.aio.clock import Clock
from gateway.bridge.inputs import answers_in, input_required, url_elicitations
from gateway.bridge.requests import to_handshake
from gateway.bridge.results import error_to_stateless, notification_for
from gateway.protocol.codes import INTERNAL_ERROR, LIMIT_REACHED, MISSING_CAPABILITY
from gateway.protocol.envelope import (
    dump,
    error_response,
    members,
    refusal_response,
    response,
    text_of,
    value,
)
from gateway.protocol.errors import Refusal, StoreAway, UpstreamLost
from gateway.protocol.stateless import (
    TASKS_EXTENSION,
    check_param_headers,
    missing_capability,
    missing_extension,
)
from gateway.service.early import Early
from gateway.service.service import TaskService
from gateway.session.asked import Asked, answer_with, in_its_codes
from gateway.session.begin import Making, MaybeStored, store_away
from gateway.session.exchange import (
    KEEP_ALIVE,
    KEEP_ALIVE_SECONDS,
    Answer,
    Outbound,
    Relay,
    Stream,
    Wire,
)
from gateway.session.held import HeldCalls
from gateway.session.infos import Infos
from gateway.session.plain import forward, unavailable
from gateway.session.relayed import relayed
from gateway.session.streams import begun
from gateway.tasks import call
from gateway.tasks.inputs import CAPABILITIES, check_answer
from gateway.upstream.port import Channel

_BAD_REQUEST: Final = 400
_MAX_ERROR: Final = 1024 * 1024
# 2026-07-28 "Multi Round-Trip Requests", Supported Requests.
_ASKING: Final = frozenset({"tools/call", "prompts/get", "resources/read"})


class Talk(msgspec.Struct):
    """One call on its way: what was answered beforehand, and when (by the clock) it becomes a task.

    `ours` says that nobody else has it: whoever leaves then gives it up. `silent` says that nothing was
    heard for as long as one waits.
    """

    asked: Asked
    early: Early
    answers: Mapping[str, bytes]
    until: float | None
    ours: bool = True
    silent: bool = False


class Bridged:
    """Makes the calls of clients of the stateless era."""

    def __init__(
        self,
        service: TaskService,
        held: HeldCalls,
        infos: Infos,
        clock: Clock,
    ) -> None:
        self._service = service
        self._held = held
        self._infos = infos
        self._clock = clock

    async def plain(self, asked: Asked) -> Outbound:
        """Answer a request that is never a task; as it came where the upstream is of the client's era."""
        if await self._native(asked):
            return await forward(asked.visit)
        if await asked.visit.served.crossing.era(asked.headers) == "stateless":
            return await decide(relayed(asked), asked)
        return await self._call(asked, None)

    async def call_tool(self, asked: Asked) -> Outbound:
        """Answer a tool call: at once, or with a task where policy and client let it be one.

        SEP-2663: the server decides, and never for a client that did not say on this very request
        that it takes tasks.
        """
        policy = asked.visit.policy
        if policy.mode == "required" and not asked.declared:
            raise missing_extension(TASKS_EXTENSION)
        may = policy.mode != "forbidden" and asked.declared
        await self._check_mirrored(asked)
        # The retry of a call that is held here never begins another one (I3).
        held = self._held.holds(asked)
        if not held and await self._native(asked):
            if await asked.passes_tasks():
                return await self._passed(asked)
            if not may:
                return await forward(asked.visit)
        at_once = policy.mode == "required" or policy.takes_turns or not policy.inline_within
        if may and at_once and not held:
            made = await self._task_at_once(asked)
            if made is not None:
                return answer_with(made)
            may = False
        return await self._call(asked, policy.inline_within / 1000 if may else None)

    async def _passed(self, asked: Asked) -> Outbound:
        """Pass a call on to an upstream that decides about tasks itself.

        What that runs as a task only is driven for a client that takes none.
        """
        outbound = await forward(asked.visit)
        if asked.declared or not isinstance(outbound, Relay) or outbound.reply.status != _BAD_REQUEST:
            return outbound
        try:
            body = await outbound.reply.read(_MAX_ERROR)
        finally:
            await outbound.reply.close()
        if _wants_tasks(body):
            return await self._call(asked, None)
        return Answer(_BAD_REQUEST, body, outbound.headers)

    async def _check_mirrored(self, asked: Asked) -> None:
        """Raise `Refusal` -32020 where headers that mirror arguments do not (2026-07-28 transports)."""
        visit = asked.visit
        if visit.inbound.verb != "POST" or visit.tool is None:
            return
        schema = await visit.served.crossing.tool_schema(asked.caller, visit.tool, asked.headers)
        if schema is not None:
            arguments = members(visit.request.params).get("arguments")
            given = None if arguments is None else bytes(arguments)
            check_param_headers(given, schema, visit.inbound.header)

    async def _native(self, asked: Asked) -> bool:
        """Tell whether a request goes to an upstream of its own era as it came."""
        served = asked.visit.served
        if served.upstream.http is None or served.upstream.prefers_links:
            return False
        return await served.crossing.era(asked.headers) == "stateless"

    async def _call(self, asked: Asked, window: float | None) -> Outbound:
        request = asked.visit.request
        answers: Mapping[str, bytes] = {}
        if request.method in _ASKING:
            answers, state = answers_in(request)
            if state is not None:
                return await decide(self._held.resume(asked, state, answers), asked)
        channel = await self._channel(asked)
        early = self._service.early(to_handshake(request.raw), channel, asked.headers)
        until = None if window is None else self._clock.monotonic() + window
        talk = Talk(asked, early, answers, until)
        at_once = await self._at_once(talk)
        return await decide(self._talk(talk), asked) if at_once is None else answer_with(at_once)

    async def _at_once(self, talk: Talk) -> bytes | None:
        """Return the response where the upstream says nothing before it, as most do.

        What else it says is left to `_talk`.
        """
        done = True
        try:
            heard = await talk.early.next(self._seconds(talk.until))
            if heard is not None and heard.kind == "final":
                return await self._final(talk.asked, heard)
            done = False
        except UpstreamLost as lost:
            raise in_its_codes(unavailable(lost)) from lost
        finally:
            if done:
                await talk.early.let_go("the client has gone")
        talk.silent = heard is None
        if heard is not None:
            talk.early.put_back(heard)
        return None

    async def _channel(self, asked: Asked) -> Channel:
        """Return the channel for a call; what its upstream runs as a task only is driven as one there."""
        crossing, tool = asked.visit.served.crossing, asked.visit.tool
        support = "forbidden"
        if tool is not None:
            support = await crossing.tool_support(asked.caller, tool, asked.headers)
        # A stateless upstream decides by itself: what it makes a task of is driven.
        native = await crossing.era(asked.headers) == "stateless"
        return crossing.channel(asked.caller, drive=support == "required" or native)

    async def _task_at_once(self, asked: Asked) -> bytes | None:
        """Make a task before anything is sent; `None` where it cannot be one and need not be.

        Where calls take turns, one that meets a limit is refused: it would call out of turn.
        """
        message = to_handshake(asked.visit.request.raw)
        channel = await self._channel(asked)
        try:
            running = await self._held.make(
                asked.visit, Making(channel, message, asked.askable, caller=asked.caller)
            )
        except (StoreAway, Refusal) as wrong:
            policy = asked.visit.policy
            limited = isinstance(wrong, Refusal) and wrong.code == LIMIT_REACHED and policy.takes_turns
            if policy.mode != "required" and not limited and not isinstance(wrong, MaybeStored):
                return None
            if isinstance(wrong, StoreAway):
                raise store_away("this call must be a task") from wrong
            raise
        return asked.extension.created(running.task)

    async def _talk(self, talk: Talk) -> AsyncGenerator[Wire | bytes, None]:
        """Yield what the client shall hear of a call, the response last.

        Closing it before the end gives the call up, and the upstream hears of it (I11).
        """
        try:
            yield b""
            async with aclosing(self._steps(talk)) as steps:
                async for step in steps:
                    yield step
        except UpstreamLost as lost:
            raise in_its_codes(unavailable(lost)) from lost
        finally:
            if talk.ours:
                await talk.early.let_go("the client has gone")

    async def _steps(self, talk: Talk) -> AsyncGenerator[Wire | bytes, None]:
        while True:
            # An upstream that never stops talking would never be found silent.
            still = talk.silent or self._late(talk)
            heard = None if still else await talk.early.next(self._seconds(talk.until))
            talk.silent = False
            if heard is not None and heard.kind == "ask":
                if await self._answer(talk, heard):
                    continue
                talk.ours = False
                held = self._held.hold(talk.asked, talk.early, heard, promised=talk.until is not None)
                async with aclosing(held) as items:
                    async for item in items:
                        yield item
                return
            step = await (self._silence(talk) if heard is None else self._said(talk, heard))
            if step is not None:
                yield step
            if isinstance(step, Wire) and step.last:
                return

    async def _silence(self, talk: Talk) -> Wire | bytes:
        """The upstream has said nothing for a while: time for a task, or for a sign of life."""
        if not self._late(talk):
            return KEEP_ALIVE
        talk.ours, talk.until = False, None
        created = await self._become_task(talk)
        if created is not None:
            return Wire(created, last=True)
        talk.ours = True
        return KEEP_ALIVE

    async def _said(self, talk: Talk, heard: call.Heard) -> Wire | None:
        match heard.kind:
            case "final":
                return Wire(await self._final(talk.asked, heard), last=True)
            case "ping":
                await talk.early.send(call.pong(heard.upstream_id))
            case "progress" | "notification":
                meta = talk.asked.meta
                shown = notification_for(heard.message, token=meta.token, log_level=meta.log_level)
                return None if shown is None else Wire(shown)
            case _:
                pass
        return None

    def _late(self, talk: Talk) -> bool:
        return talk.until is not None and self._clock.monotonic() >= talk.until

    def _seconds(self, until: float | None) -> float:
        if until is None:
            return KEEP_ALIVE_SECONDS
        return max(0.0, min(KEEP_ALIVE_SECONDS, until - self._clock.monotonic()))

    async def _become_task(self, talk: Talk) -> bytes | None:
        """Make a task of a call that takes its time; `None` where it cannot be one and goes on as it is."""
        asked, early = talk.asked, talk.early
        try:
            making = Making(early.channel, early.message, asked.askable, early, caller=asked.caller)
            running = await self._held.make(asked.visit, making)
        except (StoreAway, Refusal):
            return None
        return asked.extension.created(running.task)

    async def _answer(self, talk: Talk, heard: call.Heard) -> bool:
        """Answer an upstream's question where the client has done so beforehand; raise where it cannot."""
        asked, early = talk.asked, talk.early
        if asked.visit.request.method not in _ASKING:
            await early.send(_no(heard, "The client cannot be asked anything during this request"))
            return True
        needed = CAPABILITIES.get(heard.method)
        if needed is None:
            await early.send(_no(heard, f"Method not found: {heard.method}"))
            return True
        if heard.method not in asked.askable:
            await early.send(_no(heard, f"The client does not support {needed}"))
            raise missing_capability({needed: {}})
        name = text_of(heard.upstream_id)
        answer = None if name is None else talk.answers.get(name)
        if answer is None or name is None:
            return False
        check_answer(heard.method, name, answer)
        await early.send(response(heard.upstream_id, answer))
        return True

    async def _final(self, asked: Asked, heard: call.Heard) -> bytes:
        outcome = heard.outcome
        if outcome is not None and outcome.result is not None:
            return asked.respond(outcome.result, await self._infos.of(asked))
        error = outcome.rpc_error if outcome is not None else None
        if error is None:
            error = dump({"code": INTERNAL_ERROR, "message": "the upstream sent an empty response"})
        wanted = url_elicitations(error)
        if wanted is not None and "elicitation" in members(asked.meta.capabilities):
            return response(asked.ident, input_required(wanted, None))
        return error_response(asked.ident, error_to_stateless(error))


def _wants_tasks(body: bytes) -> bool:
    """Tell whether a refusal says that its client should take tasks (SEP-2663, -32021)."""
    error = members(members(body).get("error"))
    required = members(members(error.get("data")).get("requiredCapabilities"))
    missing = value(error.get("code")) == MISSING_CAPABILITY
    return missing and TASKS_EXTENSION in members(required.get("extensions"))


def _no(heard: call.Heard, words: str) -> bytes:
    return error_response(heard.upstream_id, dump({"code": INTERNAL_ERROR, "message": words}))


async def decide(items: AsyncGenerator[Wire | bytes, None], asked: Asked) -> Outbound:
    """Answer with JSON where the response comes first, else with an event stream.

    What goes wrong before anything is sent is raised, so that it has its HTTP status; after that it is
    the stream's last message.
    """
    first: Wire | bytes = b""
    try:
        async for item in items:
            if isinstance(item, Wire) and item.last:
                await items.aclose()
                return answer_with(item.message)
            if item and asked.visit.inbound.accepts_events:
                first = item
                break
    except BaseException:
        await items.aclose()
        raise
    return Stream(await begun(_rest(first, items, asked)))


async def _rest(
    first: Wire | bytes, items: AsyncGenerator[Wire | bytes, None], asked: Asked
) -> AsyncGenerator[Wire | bytes, None]:
    async with aclosing(items):
        yield b""
        yield first
        try:
            async for item in items:
                yield item
        except Refusal as refusal:
            yield Wire(refusal_response(asked.ident, in_its_codes(refusal)), last=True)
        except StoreAway:
            yield Wire(refusal_response(asked.ident, store_away("the call cannot go on")), last=True)
