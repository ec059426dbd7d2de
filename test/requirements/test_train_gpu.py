# SPDX-License-Identifier: Apache-2.0
"""The environment of GPU machines has what training on a CPU has."""

from __future__ import annotations

from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parents[2] / 'requirements'


def included(name: str) -> set[str]:
    """The files of requirements that one takes in, itself included."""
    lines = (REQUIREMENTS / name).read_text().splitlines()
    taken = [line.split()[1] for line in lines if line.startswith('-r ')]
    return {name}.union(*map(included, taken))


def test_gpu_environment_has_the_core_and_training() -> None:
    assert {'base.txt', 'train.txt'} <= included('train-gpu.txt')
