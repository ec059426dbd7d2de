# SPDX-License-Identifier: Apache-2.0
"""Who may use the page: this machine, or those with the token; never a page of somebody else.

A name of a foreign page may be made to mean this machine (DNS rebinding), so the host that a
browser names must be an address, `localhost`, or the host that was given. A foreign page may send
forms here, so what writes must come from this very page.
"""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from secrets import compare_digest
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

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
    """Lets requests through to an ASGI application, or answers them itself."""

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
        """Status and reason of a refusal; None: the request may go on."""
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
