# SPDX-License-Identifier: Apache-2.0
"""Training commands in processes of their own, which need not import torch and TRL again.

They are forked from one process that has imported them, which takes longer than a short training.
"""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
import runpy
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
_FORKS = multiprocessing.get_context('forkserver')
_FORKS.set_forkserver_preload(['peft', 'trl.trainer.grpo_trainer', 'trl.trainer.sft_trainer'])


def run_training(
    command: str, words: Sequence[str], launcher: Sequence[str] = (), timeout_s: float = 280.0
) -> subprocess.CompletedProcess[str]:
    """Run `python -m training.COMMAND` with its words from the root of the project.

    Args:
        command: Such as `sft`.
        words: Of its command line.
        launcher: What Python runs it with, such as `-m accelerate.commands.launch`; then the
            process is not a fork.
        timeout_s: After which it is ended.

    Returns:
        Exit code and what it wrote.

    Raises:
        TimeoutExpired: It had not ended by then.
    """
    if launcher:
        whole = [sys.executable, *launcher, '-m', f'training.{command}', *words]
        return subprocess.run(
            whole, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    whole = [f'training.{command}', *words]
    with tempfile.TemporaryDirectory() as folder:
        texts = [Path(folder, name) for name in ('out', 'err')]
        # A fork finds no module of the tests: the standard library has a package of their name.
        job = {'JOB': (whole, texts, dict(os.environ))}
        process = _FORKS.Process(target=runpy.run_path, args=(__file__, job, 'fork'))
        process.start()
        process.join(timeout_s)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(whole, timeout_s)
        out, err = (text.read_text() for text in texts)
    return subprocess.CompletedProcess(whole, process.exitcode, out, err)


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
