# SPDX-License-Identifier: Apache-2.0
"""One address in front of a server that is exchanged while clients ask."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
import threading
import time

from embodied_r_ros.common.errors import ModelError

_PIECE = 64 * 1024
_POLL_S = 0.05
_START_S = 10.0


class Relay:
    """Hands connections on to a server of this machine; those that stand stay where they are."""

    def __init__(self, host: str, port: int, target: int) -> None:
        """Listen.

        Args:
            host: Address to listen at.
            port: Port to listen on.
            target: Port of the server that gets new connections; may be changed.

        Raises:
            ModelError: The port is taken.
        """
        self.target = target
        self._open: Counter[int] = Counter()  # connections, by the port of their server
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name='relay', daemon=True).start()
        start = asyncio.start_server(self._take, host, port)
        try:
            asyncio.run_coroutine_threadsafe(start, self._loop).result(_START_S)
        except OSError as error:
            self.close()
            msg = f'port {port} of {host} cannot be used: {error}'
            raise ModelError(msg) from None

    def drain(self, limit_s: float) -> None:
        """Wait until no server but the target has a connection, at most so long."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end and any(
            count for port, count in list(self._open.items()) if port != self.target
        ):
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Listen no more; what stands is cut off."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = self.target
        self._open[target] += 1
        try:
            from_server, to_server = await asyncio.open_connection('127.0.0.1', target)
            pumps = _pump(reader, to_server), _pump(from_server, writer)
            await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:  # the client hears of it by the end of its connection
            writer.close()
        finally:
            self._open[target] -= 1


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(_PIECE):
            sink.write(data)
            await sink.drain()
    sink.close()
