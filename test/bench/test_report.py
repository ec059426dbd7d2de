# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys

import numpy as np

MEASURE = 'from bench.report import peak_mb; print(peak_mb())'


def test_the_peak_of_a_process_is_not_that_of_its_parent() -> None:
    held = np.ones(30_000_000)  # 240 MB
    command = [sys.executable, '-c', MEASURE]
    peak = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert 5 < peak < held.nbytes / 1e6


def test_the_peak_of_a_process_grows_with_what_it_holds() -> None:
    more = [sys.executable, '-c', f'held = b"1" * 50_000_000; {MEASURE}']
    less = [sys.executable, '-c', MEASURE]
    peaks = [
        float(subprocess.run(c, check=True, capture_output=True).stdout) for c in (less, more)
    ]
    assert 40 < peaks[1] - peaks[0] < 60
