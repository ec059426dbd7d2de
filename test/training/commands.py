# SPDX-License-Identifier: Apache-2.0
"""Training commands in processes of their own, which need not import torch and TRL again.

They are forked from one process that has imported them, which takes longer than a short training.
"""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
import runpy
import socket
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
_FORKS = multiprocessing.get_context('forkserver')
_FORKS.set_forkserver_preload(['peft', 'trl.trainer.grpo_trainer', 'trl.trainer.sft_trainer'])


def run_training(
    command: str, words: Sequence[str], processes: int = 1, timeout_s: float = 280.0
) -> subprocess.CompletedProcess[str]:
    """Run `python -m training.COMMAND` with its words from the root of the project.

    Args:
        command: Such as `sft`.
        words: Of its command line.
        processes: That train together, in the environment that `torchrun` gives them.
        timeout_s: After which they are ended.

    Returns:
        Exit code and what the first process wrote, or another that failed.

    Raises:
        TimeoutExpired: They had not ended by then.
    """
    whole = [f'training.{command}', *words]
    with tempfile.TemporaryDirectory() as folder, socket.create_server(('127.0.0.1', 0)) as free:
        port = free.getsockname()[1]
        forks = []
        for rank in range(processes):
            texts = [Path(folder, f'{name}{rank}') for name in ('out', 'err')]
            environment = {**os.environ, **(_rank(rank, processes, port) if processes > 1 else {})}
            job = {'JOB': (whole, texts, environment)}
            # It finds no module of the tests: the standard library has a package of their name.
            process = _FORKS.Process(target=runpy.run_path, args=(__file__, job, 'fork'))
            forks.append((process, texts))
        free.close()
        for process, _ in forks:
            process.start()
        end = time.monotonic() + timeout_s
        for process, _ in forks:
            process.join(end - time.monotonic())
        late = [process for process, _ in forks if process.exitcode is None]
        for process in late:
            process.kill()
            process.join()
        if late:
            raise subprocess.TimeoutExpired(whole, timeout_s)
        process, texts = max(forks, key=lambda fork: bool(fork[0].exitcode))
        out, err = (text.read_text() for text in texts)
    return subprocess.CompletedProcess(whole, process.exitcode or 0, out, err)


def _rank(rank: int, processes: int, port: int) -> dict[str, str]:
    names = {'RANK': rank, 'LOCAL_RANK': rank, 'WORLD_SIZE': processes, 'MASTER_PORT': port}
    return {'MASTER_ADDR': '127.0.0.1', **{name: str(value) for name, value in names.items()}}


def _run(whole: Sequence[str], texts: Sequence[Path], environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    for number, path in enumerate(texts, start=1):
        with path.open('wb') as file:
            os.dup2(file.fileno(), number)
    sys.path.insert(0, str(ROOT))
    sys.argv = list(whole)
    runpy.run_module(whole[0], run_name='__main__', alter_sys=True)


if __name__ == 'fork':
    _run(*globals()['JOB'])
