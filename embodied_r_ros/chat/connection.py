# SPDX-License-Identifier: Apache-2.0
"""One HTTP request with one deadline over all of it, and a real cancel."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
import time
from typing import Any, TYPE_CHECKING, TypeVar

from embodied_r_ros.common.errors import CancelledError, DeadlineError, ModelError
import httpx

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
    import ssl
    import threading

Value = TypeVar('Value')
# How late a cancel may be noticed [s]; an Event cannot be waited for by asyncio.
_POLL_S = 0.05
_CLOSE_S = 1.0  # most that closing a connection may take [s]
# Of a line, or of a body that is read whole. Parsing holds the interpreter, and with it every
# callback of the node: a few milliseconds for so much.
_MAX_BYTES = 512 * 1024


class Watch:
    """When to stop waiting: at a deadline, or when the caller cancels."""

    def __init__(self, deadline_s: float, cancel: threading.Event | None, url: str) -> None:
        """Start the clock; `url` is named in errors."""
        self._end = time.monotonic() + deadline_s
        self._deadline_s = deadline_s
        self._cancel = cancel
        self._url = url

    def left_s(self) -> float:
        """Time that is left [s].

        Raises:
            DeadlineError: None is.
            CancelledError: The caller does not wait any more.
        """
        if self._cancel is not None and self._cancel.is_set():
            msg = f'the request to {self._url} was cancelled'
            raise CancelledError(msg)
        left_s = self._end - time.monotonic()
        if left_s <= 0:
            msg = (
                f'{self._url} was not done within {self._deadline_s:.1f} s: allow more time, '
                'fewer tokens, or use a faster model'
            )
            raise DeadlineError(msg)
        return left_s

    def sleep(self, duration_s: float) -> None:
        """Wait, but not beyond the deadline or a cancel, which are raised as in `left_s`."""
        end = time.monotonic() + duration_s
        while (rest_s := end - time.monotonic()) > 0:
            time.sleep(min(_POLL_S, rest_s, self.left_s()))


@dataclass(frozen=True)
class HttpCall:
    """One HTTP request."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes = b''
    connect_timeout_s: float = 5.0
    verify: ssl.SSLContext | bool = True
    trust_env: bool = False  # whether proxies named in the environment are used


class Reply:
    """An HTTP reply whose body has not been read yet. Close it, in the thread that opened it."""

    def __init__(self, call: HttpCall, watch: Watch) -> None:
        """Send the request and wait for the reply's status.

        Raises:
            DeadlineError, CancelledError: As `watch` says.
            httpx.HTTPError: The connection failed.
        """
        self._watch = watch
        self._url = call.url
        self._loop = asyncio.new_event_loop()
        self._response: httpx.Response | None = None
        # The watch bounds every wait but the one for a connection, which has its own bound.
        timeout = httpx.Timeout(None, connect=call.connect_timeout_s)
        self._client = httpx.AsyncClient(
            verify=call.verify, timeout=timeout, trust_env=call.trust_env
        )
        try:
            request = self._client.build_request(
                call.method, call.url, headers=dict(call.headers), content=call.body or None
            )
            self._response = self._wait(self._client.send(request, stream=True))
            self.status = self._response.status_code
            self.headers = self._response.headers
            self.content_type = str(self.headers.get('content-type', ''))
        except BaseException:
            self.close()
            raise

    def lines(self) -> Iterator[str]:
        """Yield the lines of the body as they come.

        Raises:
            DeadlineError, CancelledError: As the watch says.
            ModelError: A line is longer than 512 KiB.
            httpx.HTTPError: The connection failed.
        """
        # httpx also splits lines at characters that JSON strings may hold, such as U+2028.
        rest = b''
        for piece in self._pieces():
            rest += piece
            if b'\n' in piece:
                *lines, rest = rest.split(b'\n')
                for line in lines:
                    yield line.decode(errors='replace').rstrip('\r')
            if len(rest) > _MAX_BYTES:
                msg = f'{self._url} sent a line of more than {_MAX_BYTES} bytes'
                raise ModelError(msg)
        if rest:
            yield rest.decode(errors='replace')

    def text(self) -> str:
        """Read the body, up to 512 KiB of it.

        Raises:
            DeadlineError, CancelledError: As the watch says.
            httpx.HTTPError: The connection failed.
        """
        data = bytearray()
        for piece in self._pieces():
            data += piece
            if len(data) > _MAX_BYTES:
                break
        return data.decode(errors='replace')

    def wanted_wait_s(self) -> float | None:
        """How long the server wants to be left alone (Retry-After) [s]; None: it does not say."""
        wanted = str(self.headers.get('retry-after', '')).strip()
        try:
            if milliseconds := self.headers.get('retry-after-ms'):
                return max(0.0, float(milliseconds) / 1000)
            return max(0.0, float(wanted)) if wanted else None
        except ValueError:
            return self._seconds_until(wanted)

    def _seconds_until(self, date: str) -> float | None:
        """Seconds from the reply's own date to another one."""
        try:
            now = parsedate_to_datetime(str(self.headers.get('date', '')))
            return max(0.0, (parsedate_to_datetime(date) - now).total_seconds())
        except (ValueError, TypeError):
            return None

    def _pieces(self) -> Iterator[bytes]:
        assert self._response is not None  # mypy.
        pieces = self._response.aiter_bytes()
        while (piece := self._wait(_next(pieces))) is not None:
            yield piece

    def close(self) -> None:
        """End the connection; the server notices."""
        if self._loop.is_closed():
            return
        try:
            self._loop.run_until_complete(asyncio.wait_for(self._hang_up(), _CLOSE_S))
        except (httpx.HTTPError, OSError, asyncio.TimeoutError):
            pass  # The outcome of this connection no longer matters.
        finally:
            self._loop.close()

    async def _hang_up(self) -> None:
        if self._response is not None:
            await self._response.aclose()
        # All is closed when the HTTP library of Ubuntu 22.04 says that a request had not begun.
        with suppress(RuntimeError):
            await self._client.aclose()
        await self._loop.shutdown_asyncgens()

    def __enter__(self) -> Reply:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait(self, step: Coroutine[Any, Any, Value]) -> Value:
        """Run the event loop until a step is done, looking at the watch in between."""
        task = self._loop.create_task(step)
        try:
            while not task.done():
                slice_s = min(_POLL_S, self._watch.left_s())
                self._loop.run_until_complete(asyncio.wait({task}, timeout=slice_s))
            return task.result()
        except BaseException:
            task.cancel()
            self._loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
            raise


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    async for piece in pieces:
        return piece
    return None
