# SPDX-License-Identifier: Apache-2.0
"""A node in a process of its own, whose every callback is timed.

Times are written when the node has ended. A callback is whatever the executor runs without a
break: a subscription's or a timer's function, or a coroutine's way from one wait to the next.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
import signal
import subprocess
import sys
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.processes import tie_command
import numpy as np
from rclpy.task import Task
import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_ROOT = Path(__file__).resolve().parents[1]
_END_S = 20.0


@dataclass(frozen=True)
class Callbacks:
    """Callbacks of a node, in the order in which they ran. Arrays have one entry for each."""

    start_ns: NDArray[np.int64]  # of the monotonic clock, which all processes share
    wall_ns: NDArray[np.int64]  # how long it took
    waited_ns: NDArray[np.int64]  # how much of that its process waited for a processor

    def between(self, start_ns: int, end_ns: int) -> Callbacks:
        """Those that began in a stretch of time."""
        among = (self.start_ns >= start_ns) & (self.start_ns < end_ns)
        return Callbacks(self.start_ns[among], self.wall_ns[among], self.waited_ns[among])

    def held_ms(self) -> NDArray[np.float64]:
        """How long each held the executor, without the waits for a processor [ms]."""
        return np.asarray(np.maximum(0, self.wall_ns - self.waited_ns) * 1e-6, np.float64)


class TimedNode:
    """The process of a timed node."""

    def __init__(self, name: str, parameters: Mapping[str, Any], folder: Path) -> None:
        """Start a node that configures and activates itself; its files go into the folder."""
        self.name = name
        self._times = folder / f'{name}.npy'
        self.log = folder / f'{name}.log'
        file = folder / f'{name}.yaml'
        values = {'autostart': True, **parameters}
        file.write_text(yaml.safe_dump({'/**': {'ros__parameters': values}}))
        words = [sys.executable, '-m', 'bench.timed_node', name, str(self._times)]
        with self.log.open('wb') as log:
            self._process = subprocess.Popen(
                tie_command([*words, '--ros-args', '--params-file', str(file)]),
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def check(self) -> None:
        """See that it runs."""
        if self._process.poll() is not None:
            tail = self.log.read_text(errors='replace')[-500:]
            sys.exit(f'bench: error: {self.name} ended by itself: {tail}')

    def end(self) -> Callbacks:
        """End it, and give the times of its callbacks."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            tail = self.log.read_text(errors='replace')[-500:]
            sys.exit(f'bench: error: {self.name} did not end within {_END_S} s: {tail}')
        start_ns, wall_ns, waited_ns = np.load(self._times)
        return Callbacks(start_ns, wall_ns, waited_ns)


def main() -> int:
    """Run the node until it is told to end, and write the times."""
    name, path = sys.argv[1:3]
    times: list[tuple[int, int, int]] = []
    run_task = Task.__call__

    def time_task(task: Task) -> None:
        waited, start_ns = waits_ns(), time.monotonic_ns()
        run_task(task)
        wall_ns = time.monotonic_ns() - start_ns
        # A callback also waits for the thread that has the interpreter, which may wait itself.
        longest_ns = max(ns - waited.get(thread, 0) for thread, ns in waits_ns().items())
        times.append((start_ns, wall_ns, longest_ns))

    Task.__call__ = time_task
    code = int(import_module(f'embodied_r_ros.nodes.{name}').main())
    np.save(path, np.array(times, np.int64).reshape(-1, 3).T)
    return code


def waits_ns(process: int | str = 'self') -> dict[str, int]:
    """Time that each thread of a process has waited for a processor (proc(5), schedstat) [ns]."""
    waits = {}
    for thread in Path(f'/proc/{process}/task').iterdir():
        with suppress(OSError):  # it has just ended
            waits[thread.name] = int((thread / 'schedstat').read_text().split()[1])
    return waits


if __name__ == '__main__':
    sys.exit(main())
