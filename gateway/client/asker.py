"""Answers to what a server asks: forms, URLs and sampling at the prompt, one after the other.

2025-11-25, client/elicitation and client/sampling: a person sees what is asked, by whom, and can say no.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from gateway.client.forms import Field, fill, hint, parse, read_fields, spell
from gateway.client.screen import Screen
from gateway.client.trees import as_object, as_objects
from gateway.protocol.codes import INVALID_PARAMS, METHOD_NOT_FOUND
from gateway.protocol.envelope import value
from gateway.protocol.errors import Refusal

REJECTED: Final = -1
_CHOICES: Final = {"": "accept", "a": "accept", "d": "decline", "c": "cancel"}


class Asker:
    """Who answers the server: the person at the prompt, or values that were given beforehand."""

    def __init__(self, screen: Screen, answers: dict[str, msgspec.Raw] | None) -> None:
        self._screen = screen
        self._answers = None if answers is None else {name: value(raw) for name, raw in answers.items()}
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Asker prompt={self._screen.asks} prepared={self._answers is not None}>"

    @property
    def capabilities(self) -> dict[str, Any]:
        """What the client can say of itself: nothing where there is nobody to ask."""
        if self._answers is not None:
            return {"elicitation": {"form": {}}}
        if self._screen.asks:
            return {"elicitation": {"form": {}, "url": {}}, "sampling": {}}
        return {}

    async def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a server's request, or raise the `Refusal` that answers it."""
        if method == "ping":
            return {}
        if method == "elicitation/create" and "elicitation" in self.capabilities:
            url = params.get("mode") == "url"
            if url and self._answers is not None:
                raise Refusal(INVALID_PARAMS, "This client declared no elicitation of mode url")
            if self._answers is not None:
                return self._prepared(params, self._answers)
            async with self._turn:
                with self._screen.held():
                    return await (self._url(params) if url else self._form(params))
        if method == "sampling/createMessage" and "sampling" in self.capabilities:
            async with self._turn:
                with self._screen.held():
                    return await self._sample(params)
        raise Refusal(METHOD_NOT_FOUND, f"Method not found: this client does not offer {method}")

    async def respond(self, ask: bytes) -> dict[str, Any]:
        """Return the result for one of `inputRequests` (2026-07-28, basic/patterns/mrtr).

        Errors cannot be sent there: a form that cannot be filled is cancelled, and anything else that
        has no answer raises `Refusal`.
        """
        request = as_object(value(ask))
        method = str(request.get("method"))
        try:
            return await self.answer(method, as_object(request.get("params")))
        except Refusal:
            if method == "elicitation/create" and "elicitation" in self.capabilities:
                return {"action": "cancel"}
            raise

    def _prepared(self, params: dict[str, Any], answers: dict[str, Any]) -> dict[str, Any]:
        try:
            content = fill(read_fields(params.get("requestedSchema")), answers)
        except ValueError as wrong:
            self._screen.note(f"a form is cancelled: {wrong}")
            return {"action": "cancel"}
        return {"action": "accept", "content": content}

    async def _form(self, params: dict[str, Any]) -> dict[str, Any]:
        self._screen.tell(f"The server asks: {params.get('message', '')}")
        action = await self._choice("Answer it?")
        if action != "accept":
            return {"action": action}
        content: dict[str, Any] = {}
        for field in read_fields(params.get("requestedSchema")):
            found = await self._field(field)
            if found is None:
                return {"action": "cancel"}
            if found is not msgspec.UNSET:
                content[field.name] = found
        return {"action": "accept", "content": content}

    async def _field(self, field: Field) -> Any:
        """Return the value, unset where it is left out, `None` where input ended."""
        if field.description:
            self._screen.tell(f"  {field.description}")
        for number, (_, label) in enumerate(field.choices, 1):
            self._screen.tell(f"  {number}. {label}")
        known = [hint(field)]
        if field.default is not msgspec.UNSET:
            known.append(f"empty for {spell(field.default)}")
        elif not field.required:
            known.append("may be empty")
        while True:
            line = await self._screen.ask(f"{field.label} ({'; '.join(known)}):")
            if line is None:
                return None
            try:
                return parse(field, line)
            except ValueError as wrong:
                self._screen.tell(f"  {wrong}")

    async def _url(self, params: dict[str, Any]) -> dict[str, Any]:
        url = str(params.get("url", ""))
        self._screen.tell(f"The server asks: {params.get('message', '')}")
        self._screen.tell(f"It wants you to open this page at {urlsplit(url).hostname}:\n  {url}")
        return {"action": await self._choice("Do you agree to open it?")}

    async def _choice(self, question: str) -> str:
        while True:
            line = await self._screen.ask(f"{question} [A]ccept, [d]ecline, [c]ancel:")
            if line is None:
                return "cancel"
            word = line.strip().lower()
            found = _CHOICES.get(word) or (word if word in _CHOICES.values() else None)
            if found is not None:
                return found

    async def _sample(self, params: dict[str, Any]) -> dict[str, Any]:
        self._screen.tell("The server asks for the next message of this conversation:")
        if prompt := params.get("systemPrompt"):
            self._screen.tell(f"  system: {prompt}")
        for message in as_objects(params.get("messages")):
            self._screen.tell(f"  {message.get('role')}: {_spoken(message.get('content'))}")
        line = await self._screen.ask("Your answer (empty to refuse):")
        if not line or not line.strip():
            raise Refusal(REJECTED, "User rejected sampling request")
        content = {"type": "text", "text": line.strip()}
        return {"role": "assistant", "content": content, "model": "human", "stopReason": "endTurn"}


def _spoken(content: Any) -> str:
    return " ".join(_part(part) for part in as_objects(content) or [as_object(content)])


def _part(part: dict[str, Any]) -> str:
    return str(part.get("text")) if part.get("type") == "text" else f"[{part.get('type')}]"
