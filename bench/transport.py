# SPDX-License-Identifier: Apache-2.0
"""Images lost between a camera and the keyframe extractor: separate processes, best effort.

Raw and compressed images of 640x480 and 1920x1080 are sent at 30 Hz under three conditions: with
the transport that the launch files set; with a camera that knows nothing of it; and with ours
where the system gives sockets no more than a stock Linux. Exit code 1: images were lost where
none may be. The limit of sockets is a setting of the whole machine: it is lowered for the third
condition only where that is permitted, and put back at once.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, dataclass
import json
import os
from pathlib import Path
import signal
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.nodes.transport import (
    SOCKET_LIMIT,
    socket_limit,
    stock_environment,
    STOCK_SOCKET_LIMIT,
)

from bench import live
from bench.live import RATE_HZ, Stream

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence
    from types import FrameType

STREAMS = (
    Stream(),
    Stream(transport='compressed'),
    Stream(1920, 1080),
    Stream(1920, 1080, 'compressed'),
)
OURS, FOREIGN, STOCK_SYSTEM = 'ours', 'foreign camera', 'stock rmem_max'
CONDITIONS = (OURS, FOREIGN, STOCK_SYSTEM)


@dataclass(frozen=True)
class Cell:
    """One stream under one condition. Counts are None where it was not measured."""

    stream: str
    condition: str
    is_required: bool  # that nothing is lost
    sent: int | None = None
    received: int | None = None
    latency_p99_s: float | None = None  # from an image's stamp to its keyframe; None: no keyframe
    note: str = ''  # why it was not measured

    @property
    def lost(self) -> int | None:
        """Images that did not reach the extractor."""
        if self.sent is None or self.received is None:
            return None
        return self.sent - self.received

    @property
    def is_met(self) -> bool:
        """Whether nothing was lost that may not be; what was not measured fails nothing."""
        return not (self.is_required and self.lost)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self), 'lost': self.lost, 'is_met': self.is_met}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add('--seconds', type=float, default=10.0, help='of images for each row (%(default)s)')
    add('--only', choices=CONDITIONS, help='measure one condition only')
    add('--small', action='store_true', help='640x480 only')
    add('--json', type=Path, metavar='FILE', help='write the figures here too')


def main(args: argparse.Namespace) -> int:
    """Measure, print, and tell whether images were lost where none may be."""
    streams = [stream for stream in STREAMS if not args.small or stream.width == Stream().width]
    conditions = [args.only] if args.only else CONDITIONS
    environment = dict(os.environ)  # measuring changes that of this process
    load = os.getloadavg()[0]
    count = max(1, round(args.seconds * RATE_HZ))
    cells = [
        measure(stream, condition, count, environment)
        for condition in conditions
        for stream in streams
    ]
    limit = socket_limit() or 'not known'
    print(f'{os.cpu_count()} cores, load {load:.1f} before; net.core.rmem_max {limit}')
    print(table(cells))
    if args.json:
        report = {'load_before': load, 'cells': [cell.to_json() for cell in cells]}
        args.json.write_text(json.dumps(report, indent=2) + '\n')
    return 0 if all(cell.is_met for cell in cells) else 1


def measure(stream: Stream, condition: str, count: int, environment: Mapping[str, str]) -> Cell:
    """Send so many images of a stream under a condition.

    Args:
        stream: What the camera sends.
        condition: One of CONDITIONS.
        count: How many images.
        environment: Of this process when it started.
    """
    # 6 MB thirty times a second may be more than a machine can copy: told, and not demanded.
    is_large = stream.width > Stream().width and stream.transport == 'raw'
    is_required = condition != FOREIGN and not is_large
    camera = stock_environment(environment) if condition == FOREIGN else None
    if condition != STOCK_SYSTEM:
        figures = live.measure(count, stream, camera)
    else:
        try:
            with socket_limit_of(STOCK_SOCKET_LIMIT):
                figures = live.measure(count, stream, camera)
        except PermissionError:
            note = f'not measured: needs the right to write {SOCKET_LIMIT}'
            return Cell(str(stream), condition, is_required, note=note)
    p99_s = figures.latency_p99_s if figures.keyframes else None
    return Cell(str(stream), condition, is_required, figures.sent, figures.arrived, p99_s)


@contextmanager
def socket_limit_of(limit: int) -> Iterator[None]:
    """No socket gets a larger receive buffer than `limit` [bytes] meanwhile.

    The setting is the machine's: it is put back in the end, also where this process has to end.

    Raises:
        PermissionError: This process may not change it.
    """
    before = socket_limit()
    if before is None:
        msg = f'{SOCKET_LIMIT} cannot be read'
        raise PermissionError(msg)
    if before <= limit:
        yield
        return
    ended = signal.signal(signal.SIGTERM, _end)
    try:
        SOCKET_LIMIT.write_text(str(limit))
        print(f'net.core.rmem_max is {limit} for now, and {before} after that', file=sys.stderr)
        yield
    finally:
        SOCKET_LIMIT.write_text(str(before))
        signal.signal(signal.SIGTERM, ended)


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    sys.exit(128 + number)


def table(cells: Sequence[Cell]) -> str:
    """The cells as text."""
    header = (
        f'{"":4}  {"condition":15} {"stream":21} {"sent":>6} {"received":>9} {"lost":>6} '
        f'{"p99 to keyframe":>16}'
    )
    return '\n'.join([header, *map(_line, cells)])


def _line(cell: Cell) -> str:
    start = f'{cell.condition:15} {cell.stream:21}'
    if cell.lost is None:
        return f'{"-":4}  {start} {cell.note}'
    verdict = 'info' if not cell.is_required else 'PASS' if cell.is_met else 'FAIL'
    p99 = '-' if cell.latency_p99_s is None else f'{cell.latency_p99_s * 1e3:.0f} ms'
    counts = f'{cell.sent:>6} {cell.received:>9} {cell.lost:>6}'
    return f'{verdict:4}  {start} {counts} {p99:>16}'
