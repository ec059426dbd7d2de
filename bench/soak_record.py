# SPDX-License-Identifier: Apache-2.0
"""What a soak samples, and how much of it has grown."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
import re
import threading
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.core.scene.memory import MemoryConfig
import numpy as np

from bench.report import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_MOST_POINTS = 200  # for a slope; more are medians of so many stretches
_WARM_UP = 0.2  # share of the time that is not judged: pools and memories fill
# How much may have grown by the end, by the slope of what was sampled.
MOST_MEMORY_MB = 10.0
MOST_DELTA_MB = 0.004  # that each delta may add which the reasoner keeps, beside that
MOST_HANDLES = 2.0
MOST_KEYFRAME_S = 0.05
MOST_ANSWER_S = 0.5
MOST_DROPS_PER_MINUTE = 10.0


ANSWERED = 'answered'
REASONER = 'spatial_reasoner'
UNREADABLE = 'unreadable'  # the model spoke, and no answer is to be read in it


@dataclass(frozen=True)
class SoakSample:
    """The processes at a moment."""

    t_s: float  # since the first delta
    memory_mb: Mapping[str, float]  # by process; pages of files left out, which Linux takes back
    handles: Mapping[str, int]  # open files, sockets and pipes
    drops: Mapping[str, int]  # by node, since its start
    deltas: int = 0  # that the reasoner keeps


@dataclass(frozen=True)
class Request:
    """A question, and what came of it."""

    t_s: float
    latency_s: float
    outcome: str  # ANSWERED, UNREADABLE, or why there is no answer
    is_away: bool  # the model server was not there when it was asked
    first_token_s: float = 0.0  # of that, until the model began to speak
    read: int = 0  # characters of the prompt
    written: int = 0  # characters of the completion

    @property
    def is_heard(self) -> bool:
        """Whether the model said something to its end; what it is worth is another matter."""
        return self.outcome in (ANSWERED, UNREADABLE)


@dataclass
class Record:
    """Everything that was sampled; times are seconds since the first delta."""

    samples: list[SoakSample] = field(default_factory=list)
    keyframes: list[tuple[float, float]] = field(default_factory=list)  # time, latency [s]
    requests: list[Request] = field(default_factory=list)
    restarts_s: list[float] = field(default_factory=list)  # of the model server
    sent: int = 0  # images
    arrived: int = 0

    def answers(self) -> list[tuple[float, float]]:
        """Time and latency [s] of what the model said."""
        return [(request.t_s, request.latency_s) for request in self.requests if request.is_heard]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


class Sampler:
    """Looks at processes now and then, from a thread of its own."""

    def __init__(
        self,
        pids: Callable[[], Mapping[str, int]],
        drops: Callable[[], Mapping[str, int]],
        deltas: Callable[[], int],
        every_s: float,
        record: Record,
    ) -> None:
        """Take whom to look at, what their nodes say they dropped and keep, and the record."""
        self._pids, self._drops, self._deltas = pids, drops, deltas
        self._every_s, self._record = every_s, record
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._start_s = 0.0

    @property
    def is_running(self) -> bool:
        """Whether the time counts already, or still."""
        return self._thread.is_alive()

    def now_s(self) -> float:
        """Time since the begin [s]."""
        return time.monotonic() - self._start_s

    def __enter__(self) -> Sampler:
        self._start_s = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            memory, handles = {}, {}
            for name, pid in self._pids().items():
                with suppress(OSError):  # it is being started anew
                    memory[name], handles[name] = memory_mb(pid), handle_count(pid)
            sample = SoakSample(self.now_s(), memory, handles, self._drops(), self._deltas())
            self._record.samples.append(sample)


def memory_mb(pid: int) -> float:
    """Memory that a process holds, without pages of files, which Linux can take back [MB].

    Raises:
        OSError: There is no such process.
    """
    status = Path(f'/proc/{pid}/status').read_text()
    parts = re.findall(r'^Rss(?:Anon|Shmem):\s+(\d+) kB$', status, re.MULTILINE)
    if not parts:
        msg = f'process {pid} has ended'
        raise ProcessLookupError(msg)
    return sum(map(int, parts)) / 1024


def handle_count(pid: int) -> int:
    """Open files, sockets and pipes of a process.

    Raises:
        OSError: There is no such process.
    """
    return sum(1 for _ in Path(f'/proc/{pid}/fd').iterdir())


def growth(times_s: Sequence[float], values: Sequence[float]) -> float:
    """By how much values have grown from the first time to the last, by their slope.

    The slope is the median of those between any two points (Theil-Sen), which no outlier moves.

    Args:
        times_s: In ascending order.
        values: One for each time.

    Returns:
        NaN with fewer than two points.
    """
    times, points = np.asarray(times_s, float), np.asarray(values, float)
    if len(times) < 2:
        return float('nan')
    if len(times) > _MOST_POINTS:
        parts = np.array_split(np.arange(len(times)), _MOST_POINTS)
        medians = [(np.median(times[part]), np.median(points[part])) for part in parts]
        times, points = np.array(medians).T
    first, second = np.triu_indices(len(times), 1)
    runs = times[second] - times[first]
    slopes = (points[second] - points[first])[runs > 0] / runs[runs > 0]
    return float(np.median(slopes) * (times[-1] - times[0])) if len(slopes) else float('nan')


def growths(record: Record) -> dict[str, dict[str, float]]:
    """By how much everything has grown after the warm-up: by measure, and there by process."""
    samples = _after_warmup(record.samples, [sample.t_s for sample in record.samples])
    names = sorted({name for sample in samples for name in sample.memory_mb})
    nodes = sorted({name for sample in samples for name in sample.drops})
    return {
        'memory_mb': {n: _growth(samples, [s.memory_mb.get(n) for s in samples]) for n in names},
        'handles': {n: _growth(samples, [s.handles.get(n) for s in samples]) for n in names},
        'drops_per_minute': {n: _drop_rate_growth(samples, n) for n in nodes},
        'deltas': {REASONER: _growth(samples, [sample.deltas for sample in samples])},
        'latency_s': {
            'keyframe': growth(
                *_columns(_after_warmup(record.keyframes, _times(record.keyframes)))
            ),
            'answer': growth(*_columns(_after_warmup(record.answers(), _times(record.answers())))),
        },
    }


def budgets_of(record: Record, own: Sequence[str]) -> list[Budget]:
    """Every slope against its limit.

    Args:
        record: What was sampled.
        own: Processes that are judged; others are only shown.
    """
    growth_by_series = growths(record)
    budgets = []
    for kind, limit, unit in (
        ('memory_mb', MOST_MEMORY_MB, 'MB'),
        ('handles', MOST_HANDLES, ''),
        ('drops_per_minute', MOST_DROPS_PER_MINUTE, '/min'),
    ):
        what = kind.partition('_')[0]
        kept = growth_by_series['deltas'] if kind == 'memory_mb' else {}
        budgets += [
            Budget(f'{name}: {what} grown', grown, limit + _kept_mb(kept.get(name, 0.0)), unit)
            for name, grown in growth_by_series[kind].items()
            if name in own
        ]
    most_kept = max((sample.deltas for sample in record.samples), default=0)
    budgets.append(Budget('deltas that the reasoner keeps', most_kept, MemoryConfig().max_deltas))
    failed = [
        request for request in record.requests if not request.is_heard and not request.is_away
    ]
    latency = growth_by_series['latency_s']
    return [
        *budgets,
        Budget('keyframe latency grown', latency['keyframe'], MOST_KEYFRAME_S, 's'),
        Budget('answer latency grown', latency['answer'], MOST_ANSWER_S, 's'),
        Budget('images lost between camera and extractor', record.sent - record.arrived, 0),
        Budget('questions without an answer, server up', len(failed), 0),
    ]


def _kept_mb(deltas: float) -> float:
    """How much so many more deltas may add to the memory of the reasoner [MB]."""
    return MOST_DELTA_MB * min(max(0.0, deltas), MemoryConfig().max_deltas)


def _after_warmup(things: Sequence[Any], times_s: Sequence[float]) -> list[Any]:
    """Those after the warm-up."""
    if not times_s:
        return []
    begin = times_s[0] + _WARM_UP * (times_s[-1] - times_s[0])
    return [thing for thing, t_s in zip(things, times_s, strict=True) if t_s >= begin]


def _growth(samples: Sequence[SoakSample], values: Sequence[float | None]) -> float:
    points = [(s.t_s, v) for s, v in zip(samples, values, strict=True) if v is not None]
    return growth(*_columns(points))


def _drop_rate_growth(samples: Sequence[SoakSample], name: str) -> float:
    counts = [(s.t_s, s.drops[name]) for s in samples if name in s.drops]
    pairs = pairwise(counts)
    rates = [(t1, (n1 - n0) / (t1 - t0) * 60) for (t0, n0), (t1, n1) in pairs]
    return growth(*_columns(rates))


def _times(pairs: Sequence[tuple[float, float]]) -> list[float]:
    return [t_s for t_s, _ in pairs]


def _columns(pairs: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [t_s for t_s, _ in pairs], [value for _, value in pairs]
