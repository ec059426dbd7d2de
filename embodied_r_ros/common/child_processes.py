# SPDX-License-Identifier: Apache-2.0
"""Runs a program that ends when the process that started it ends, however that one ends.

Usage: python tied_process.py PARENT_PID PROGRAM [ARGUMENT ...]

The process becomes the program, under its own process id. Only Linux ties lives together
(prctl(2), PR_SET_PDEATHSIG); elsewhere the program simply runs. The tie is to the thread that
started the process: it must live as long as the program is wanted.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def tied(command: Sequence[str]) -> list[str]:
    """The command, as one that ends when this process ends."""
    return [sys.executable, '-I', '-S', __file__, str(os.getpid()), *command]


def main() -> None:
    """Tie, then become the program; returns only where the parent is already gone."""
    parent, program, *arguments = sys.argv[1:]
    if sys.platform.startswith('linux'):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # The parent may have ended before the tie was made.
    if os.getppid() == int(parent):
        os.execvp(program, [program, *arguments])


if __name__ == '__main__':
    main()
