# SPDX-License-Identifier: Apache-2.0
"""The web server of the review page: Starlette under uvicorn, Jinja2 for the page itself."""

from __future__ import annotations

from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
import json
from pathlib import Path
from secrets import compare_digest
import socket
import sys
from types import SimpleNamespace
from typing import Any, TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode, urlsplit

from embodied_r_ros.apps.review.library import FILTERS
from embodied_r_ros.common.errors import EmbodiedRError, InputError, ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from embodied_r_ros.apps.review.pages import ReviewService

_FOLDER = Path(__file__).resolve().parent
_STATIC = {'review.js': 'text/javascript', 'review.css': 'text/css', 'icon.svg': 'image/svg+xml'}
_MOST_BYTES = 64 * 1024  # of what is written
_FOR_A_WHILE = {'cache-control': 'private, max-age=600'}
_NEVER = {'cache-control': 'no-store'}

COOKIE = 'embodied_r_review'
_HEADERS = (
    (
        b'content-security-policy',
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b'x-content-type-options', b'nosniff'),
    (b'referrer-policy', b'no-referrer'),
    (b'cross-origin-resource-policy', b'same-origin'),
)


class Guard:
    """Lets requests through to an ASGI application, or answers them itself.

    Who may use the page: this machine, or those with the token; never a page of somebody else.
    A name of a foreign page may be made to mean this machine (DNS rebinding), so the host that a
    browser names must be an address, `localhost`, or the host that was given. A foreign page may
    send forms here, so what writes must come from this very page.
    """

    def __init__(self, app: Any, host: str, token: str = '') -> None:
        """Take the application.

        Args:
            app: What is guarded.
            host: The address on which it listens.
            token: What a browser must bring once; empty: nothing, on a loopback address alone.
        """
        self._app, self._host, self._token = app, host, token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one connection."""
        if scope['type'] == 'lifespan':
            await self._app(scope, receive, send)
            return
        if scope['type'] != 'http':
            return
        headers = {
            name.decode('latin-1'): value.decode('latin-1') for name, value in scope['headers']
        }
        if problem := self._problem(scope, headers):
            await _refuse(send, *problem)
            return
        words = dict(parse_qsl(scope['query_string'].decode('latin-1')))
        if self._token and 'token' in words:
            await self._welcome(scope, words, send)
            return

        async def send_guarded(message: Any) -> None:
            if message['type'] == 'http.response.start':
                message = {**message, 'headers': [*message.get('headers', ()), *_HEADERS]}
            await send(message)

        await self._app(scope, receive, send_guarded)

    def _problem(self, scope: Any, headers: dict[str, str]) -> tuple[int, str] | None:
        """Status and reason of a refusal; None: the request is allowed."""
        if not self._is_own_host(headers.get('host', '')):
            return 421, 'this host name is not served here: use the address that was printed'
        if scope['method'] not in {'GET', 'HEAD'}:
            origin = headers.get('origin')
            is_own = origin is None or urlsplit(origin).netloc == headers['host']
            is_json = headers.get('content-type', '').split(';')[0] == 'application/json'
            site = headers.get('sec-fetch-site', 'same-origin')
            if not (is_own and is_json and site == 'same-origin'):
                return 403, 'only this page itself may write'
        if self._token and not self._has_token(scope, headers):
            return 401, 'the token is missing or wrong: open the address that was printed'
        return None

    def _is_own_host(self, text: str) -> bool:
        try:
            name = urlsplit(f'//{text}').hostname or ''
        except ValueError:
            return False
        if name in {'localhost', self._host.lower()}:
            return True
        try:
            address = ip_address(name)
        except ValueError:
            return False
        return bool(self._token) or address.is_loopback

    def _has_token(self, scope: Any, headers: dict[str, str]) -> bool:
        words = dict(parse_qsl(scope['query_string'].decode('latin-1')))
        brought = words.get('token', '')
        try:
            cookie = SimpleCookie(headers.get('cookie', '')).get(COOKIE)
        except CookieError:
            cookie = None
        kept = cookie.value if cookie else ''
        return any(
            compare_digest(given.encode(), self._token.encode()) for given in (brought, kept)
        )

    async def _welcome(self, scope: Any, words: dict[str, str], send: Any) -> None:
        """Keep the token in a cookie, and take it out of the address."""
        rest = urlencode({name: value for name, value in words.items() if name != 'token'})
        place = '/' + scope['path'].lstrip('/') + (f'?{rest}' if rest else '')
        cookie = f'{COOKIE}={self._token}; HttpOnly; SameSite=Strict; Path=/'
        headers = [
            (b'location', place.encode('latin-1', 'ignore')),
            (b'set-cookie', cookie.encode()),
        ]
        await send(
            {'type': 'http.response.start', 'status': 303, 'headers': [*headers, *_HEADERS]}
        )
        await send({'type': 'http.response.body', 'body': b''})


async def _refuse(send: Any, status: int, reason: str) -> None:
    headers = [(b'content-type', b'text/plain; charset=utf-8'), *_HEADERS]
    await send({'type': 'http.response.start', 'status': status, 'headers': headers})
    await send({'type': 'http.response.body', 'body': f'{reason}\n'.encode()})


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
