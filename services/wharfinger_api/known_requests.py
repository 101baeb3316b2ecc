"""Reads whose parameters were checked before: the same path and query mean the same arguments.

FastAPI goes through every parameter of a route for each request, which takes longer than a list of
the present does. Programs and pages repeat their reads, so the arguments that a path and a query
came to are remembered, and the next such request is authorised and answered. What is remembered
does not depend on who asks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import wraps
from typing import Any

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.responses import Response

KNOWN_MAX = 4096
"""Of each route. Those that were asked longest ago are forgotten."""

KEY_BYTES_MAX = 512
"""Of path and query: a longer one is not remembered."""

MIN_POSITION = "min_position"
"""In the state of a request: what it is to wait for."""

Authorise = Callable[[Request], Awaitable[None]]
Answer = Callable[..., Awaitable[object]]


def known_requests(authorise: Authorise) -> type[APIRoute]:
    """The class of routes. `authorise`: what a request passes before all others of its
    dependencies; it raises where it may not."""

    class KnownRequests(APIRoute):
        def __init__(self, path: str, endpoint: Answer, **options: Any) -> None:
            self._known = _Known()
            self._answer = endpoint
            super().__init__(path, self._known.noting(endpoint), **options)

        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            checked = super().get_route_handler()
            name = self.dependant.request_param_name
            if self.methods != {"GET"} or name is None or not _told_by_url(self.dependant):
                return checked
            known, answer = self._known, self._answer
            known.request_name = name

            async def handled(request: Request) -> Response:
                found = known.arguments(request)
                if found is None:
                    return await checked(request)
                await authorise(request)
                answered = await answer(**found)
                assert isinstance(answered, Response), "else it is not remembered"
                return answered

            return handled

    return KnownRequests


def _told_by_url(dependant: Dependant) -> bool:
    """Whether path and query are all that its arguments are made of."""
    others = (dependant.header_params, dependant.cookie_params, dependant.body_params)
    named = (dependant.response_param_name, dependant.background_tasks_param_name)
    return not any(others) and not any(named) and all(map(_told_by_url, dependant.dependencies))


class _Known:
    """The arguments of one route. `request_name`: which of them is the request; empty: none are
    remembered."""

    def __init__(self) -> None:
        self.request_name = ""
        self._found: OrderedDict[tuple[str, bytes], tuple[Mapping[str, Any], int | None]] = (
            OrderedDict()
        )

    def noting(self, answer: Answer) -> Answer:
        """The same, and its arguments are remembered."""

        @wraps(answer)
        async def noted(**arguments: Any) -> object:
            kept = {name: _own(value) for name, value in arguments.items()}  # as they came
            answered = await answer(**arguments)
            if self.request_name and isinstance(answered, Response):
                self._note(kept.pop(self.request_name), kept)
            return answered

        return noted

    def _note(self, request: Request, kept: Mapping[str, Any]) -> None:
        key = _key(request)
        if len(key[0]) + len(key[1]) > KEY_BYTES_MAX:
            return
        self._found[key] = kept, getattr(request.state, MIN_POSITION, None)
        if len(self._found) > KNOWN_MAX:
            self._found.popitem(last=False)

    def arguments(self, request: Request) -> dict[str, Any] | None:
        """None: they are not known."""
        key = _key(request)
        known = self._found.get(key)
        if known is None:
            return None
        self._found.move_to_end(key)
        kept, min_position = known
        setattr(request.state, MIN_POSITION, min_position)
        return {self.request_name: request, **{name: _own(one) for name, one in kept.items()}}


def _key(request: Request) -> tuple[str, bytes]:
    return request.scope["path"], request.scope["query_string"]


def _own(value: Any) -> Any:
    """Lists are the request's own."""
    return value.copy() if isinstance(value, list) else value
