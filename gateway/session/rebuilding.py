"""Calls of replicas that were lost, made anew from what these left in the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from gateway.crossing.port import Caller
from gateway.protocol.envelope import members, peek, text_of
from gateway.protocol.headers import Headers
from gateway.service.order import Order, Taken, new_ident
from gateway.session.courses import Course, Courses
from gateway.session.exchange import Inbound
from gateway.session.own import OwnTasks
from gateway.session.visit import Served, Visit, find_channel
from gateway.store.port import Left
from gateway.tasks import call
from gateway.tasks.model import NewTask, Task
from gateway.upstream.port import Channel

_LACKING: Final = "its client's credentials are not kept in the store"
_NO_PLACE: Final = "its upstream numbers no events"
_LOST_SESSION: Final = "its session with the upstream is lost"


class Rebuilding:
    """Makes orders of courses."""

    def __init__(self, served: Callable[[], Mapping[str, Served]], courses: Courses, own: OwnTasks) -> None:
        self._served = served
        self._courses = courses
        self._own = own

    def __repr__(self) -> str:
        return f"<Rebuilding with {self._courses!r}>"

    async def rebuild(self, task: Task, left: Left) -> Order | str:
        """Return what is to be run, or in words why nothing can be; raise `UpstreamLost`, `Refusal`."""
        served = self._served().get(task.key.scope.upstream)
        course = self._courses.open(left.course, task.key)
        if served is None or course is None:
            return ""
        if course.lacking:
            return _LACKING
        request = self._courses.open_request(left.request, task.key) if left.request else None
        policy = served.policies.find(task.method, task.tool)
        if task.started_at is None:
            if request is None:
                return ""
        elif policy.on_loss != "retry":
            request = None
        elif request is None and not left.place:
            return _NO_PLACE
        made = _Made(self._own, served, task, left, course, request)
        channel, headers, why_not = await made.channel()
        if channel is None:
            return why_not
        order = Order(
            new=_new_of(task),
            policy=policy,
            message=made.message,
            channel=channel,
            reach=made.fresh,
            headers=headers,
            streams=course.streams,
            answer_within=course.answer_within,
            askable=None if course.askable is None else frozenset(course.askable),
            own_token=course.own_token,
            may_repeat=request is not None,
            has_course=True,
            has_request=request is not None,
        )
        order.recourse = lambda ident: self._courses.again(course, task.key, order, ident)
        if task.started_at is None:
            order.ident = text_of(course.ident) or order.ident
            order.recourse_due = course.caller is not None
        else:
            order.taken = Taken(
                ident=course.ident if course.ground is None else course.ground.ident,
                wants_progress=course.wants_progress,
                place=left.place,
                why_not=why_not,
                answers=left.answers,
            )
        return order


class _Made:
    """What is found again of one call."""

    def __init__(
        self,
        own: OwnTasks,
        served: Served,
        task: Task,
        left: Left,
        course: Course,
        request: bytes | None,
    ) -> None:
        self._own = own
        self._served = served
        self._begun = task.started_at is not None
        self._left = left
        self._course = course
        self._request = request
        self._visit = Visit(
            served,
            Inbound(served.name, "POST", course.headers),
            course.session,
            task.key.scope,
            principal=course.principal,
            known=course.known,
        )
        if request is not None:
            self._visit.envelope = peek(request)

    @property
    def message(self) -> bytes:
        """The request; with id and progress token where it was sent before, for its next attempt."""
        if self._request is None:
            return b""
        if not self._begun:
            return self._request
        return call.upstream_request(self._request, new_ident(), own_token=self._course.own_token)[0]

    async def channel(self) -> tuple[Channel | None, Headers, str]:
        """Return the channel, what headers go with it, and why the call cannot be resumed on it."""
        course = self._course
        if not self._begun:
            return await self.fresh(), course.headers, _LOST_SESSION
        if self._left.place:
            if course.caller is None:
                found = await find_channel(self._visit)
                if found is not None:
                    return found, course.headers, ""
            elif course.ground is not None:
                regained = self._served.crossing.regained(course.ground, course.headers)
                if regained is not None:
                    return *regained, ""
        why = _LOST_SESSION if self._left.place else _NO_PLACE
        if self._request is not None:
            return await self.fresh(), course.headers, why
        return await self._to_be_told(), course.headers, why

    async def fresh(self) -> Channel | None:
        """Return a channel on which the call can be made."""
        if self._course.caller is None:
            return await self._own.channel(self._visit)
        return await self._crossing(self._course.caller)

    async def _to_be_told(self) -> Channel | None:
        """Return the channel on which the upstream can be told that nobody waits any more."""
        session = self._course.session
        if self._course.caller is not None or session is None or session.link:
            return None
        return await find_channel(self._visit)

    async def _crossing(self, caller: Caller) -> Channel:
        crossing, headers = self._served.crossing, self._course.headers
        native = await crossing.era(headers) == "stateless"
        tool = text_of(members(self._visit.request.params).get("name")) or ""
        support = "forbidden" if native else await crossing.tool_support(caller, tool, headers)
        return crossing.channel(caller, drive=native or support == "required")


def _new_of(task: Task) -> NewTask:
    given = {name: getattr(task, name) for name in NewTask.__struct_fields__ if hasattr(task, name)}
    return msgspec.convert({**given, "first_status": task.status}, NewTask)
