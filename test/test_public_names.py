# SPDX-License-Identifier: Apache-2.0
"""Names that scripts import from the package: light, typed, and with examples that are true."""

from __future__ import annotations

import doctest
from importlib import import_module
import subprocess
import sys

import embodied_r_ros
import pytest

NAMES = embodied_r_ros.__all__


@pytest.mark.parametrize('name', NAMES)
def test_a_name_has_examples_that_are_true(name: str) -> None:
    found = getattr(embodied_r_ros, name)
    module = import_module(found.__module__)
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    [examples] = finder.find(found, name, module)
    assert examples.examples
    assert runner.run(examples).failed == 0


def test_the_loop_of_the_package_runs() -> None:
    assert doctest.testmod(embodied_r_ros).failed == 0


def test_the_package_loads_nothing_before_it_is_asked() -> None:
    code = (
        'import embodied_r_ros, sys; '
        'print(*(name for name in ("numpy", "cv2", "torch", "rclpy") if name in sys.modules))'
    )
    done = subprocess.run([sys.executable, '-c', code], check=True, capture_output=True, text=True)
    assert not done.stdout.split()


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match='no attribute'):
        _ = embodied_r_ros.NoSuchName
