# SPDX-License-Identifier: Apache-2.0
"""The web server of the review page: Starlette under uvicorn, Jinja2 for the page itself."""

from __future__ import annotations

from contextlib import suppress
import json
from pathlib import Path
import socket
import sys
from types import SimpleNamespace
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import EmbodiedRError, InputError, ModelError
from embodied_r_ros.view.review.guard import Guard
from embodied_r_ros.view.review.library import FILTERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from embodied_r_ros.view.review.pages import ReviewService

_FOLDER = Path(__file__).resolve().parent
_STATIC = {'review.js': 'text/javascript', 'review.css': 'text/css', 'icon.svg': 'image/svg+xml'}
_MOST_BYTES = 64 * 1024  # of what is written
_FOR_A_WHILE = {'cache-control': 'private, max-age=600'}
_NEVER = {'cache-control': 'no-store'}


def make_app(
    service: ReviewService, title: str, who: str = '', *, host: str, token: str = ''
) -> Guard:
    """The application of the page.

    Args:
        service: What answers.
        title: Of the page.
        who: The name that reviewers are offered as theirs.
        host: The address on which it listens.
        token: What browsers must bring; empty: nothing.

    Raises:
        InputError: The web framework is not installed; says how it is.
    """
    web = _web()
    site = _Site(web, service)
    loader = web.FileSystemLoader(_FOLDER)
    page = web.Environment(loader=loader, autoescape=True).get_template('page.html')
    text = page.render(title=title, who=who, filters=FILTERS, has_model=service.ask is not None)
    routes = [
        web.Route('/', lambda request: web.HTMLResponse(text, headers=_NEVER)),
        web.Route('/static/{name}', site.static),
        web.Route('/picture', site.picture),
        web.Route('/api/recordings', site.reading(service.recordings)),
        web.Route('/api/recording', site.reading(service.recording)),
        web.Route('/api/film', site.reading(service.film)),
        web.Route('/api/questions', site.reading(service.questions)),
        web.Route('/api/label', site.writing(service.label), methods=['POST']),
        web.Route('/api/question', site.writing(service.write), methods=['POST']),
    ]
    return Guard(web.Starlette(routes=routes), host, token)


def _web() -> SimpleNamespace:
    """The names that are used of the web framework.

    Raises:
        InputError: It is not installed.
    """
    try:
        from jinja2 import Environment, FileSystemLoader
        from starlette.applications import Starlette
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import HTMLResponse, JSONResponse, Response
        from starlette.routing import Route
    except ImportError as error:
        msg = f'the review page is not installed ({error}): {sys.executable} -m pip install '
        msg += 'starlette uvicorn jinja2'
        raise InputError(msg) from None
    return SimpleNamespace(
        Environment=Environment,
        FileSystemLoader=FileSystemLoader,
        Starlette=Starlette,
        run_in_threadpool=run_in_threadpool,
        HTMLResponse=HTMLResponse,
        JSONResponse=JSONResponse,
        Response=Response,
        Route=Route,
    )


class _Site:
    """Endpoints: what the service says, as responses."""

    def __init__(self, web: Any, service: ReviewService) -> None:
        self._web, self._service = web, service

    def reading(self, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """An endpoint that reads; Starlette runs it in a thread."""
        return lambda request: self._answer(lambda: read(request.query_params))

    def writing(self, write: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """An endpoint that takes a JSON object."""

        async def endpoint(request: Any) -> Any:
            body = await _body(request)
            run = self._web.run_in_threadpool
            return await run(self._answer, lambda: write(_object(body)))

        return endpoint

    def picture(self, request: Any) -> Any:
        """A picture of a film, or of the list."""
        words = request.query_params
        number = int(words['n']) if words.get('n', '').isdecimal() else -1
        key = words.get('e', '')
        data = None
        with suppress(InputError):
            if 'c' in words:
                data = self._service.picture(key, words['c'], number)
            else:
                data = self._service.poster(key, number)
        if data is None:
            return self._web.Response(status_code=404, headers=_NEVER)
        return self._web.Response(data, media_type='image/jpeg', headers=_FOR_A_WHILE)

    def static(self, request: Any) -> Any:
        """A file of the page."""
        name = request.path_params['name']
        if name not in _STATIC:
            return self._web.Response(status_code=404)
        text = (_FOLDER / name).read_text(encoding='utf-8')
        headers = {'cache-control': 'no-cache'}
        return self._web.Response(text, media_type=_STATIC[name], headers=headers)

    def _answer(self, make: Callable[[], Any]) -> Any:
        try:
            return self._web.JSONResponse(make(), headers=_NEVER)
        except InputError as error:
            return self._web.JSONResponse({'error': str(error)}, 400, _NEVER)
        except ModelError as error:
            return self._web.JSONResponse({'error': str(error)}, 502, _NEVER)
        except (EmbodiedRError, OSError) as error:  # of the disk: the page tries again
            return self._web.JSONResponse({'error': str(error)}, 503, _NEVER)


async def _body(request: Any) -> bytes:
    """What was sent; of too much, the beginning, which is no JSON."""
    body = b''
    async for piece in request.stream():
        body += piece
        if len(body) > _MOST_BYTES:
            return b''
    return body


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        msg = f'expected one JSON object of at most {_MOST_BYTES} bytes'
        raise InputError(msg)
    return value


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Raises:
        InputError: The address cannot be used.
    """
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, 'strerror', None) or error
        msg = f'cannot listen on {host} port {port}: {reason}: choose another --host or --port'
        raise InputError(msg) from None


def serve_app(app: Any, listening: socket.socket) -> None:
    """Serve until the process is asked to end."""
    import uvicorn

    config = uvicorn.Config(
        app, log_level='warning', access_log=False, server_header=False, lifespan='off'
    )
    uvicorn.Server(config).run(sockets=[listening])
