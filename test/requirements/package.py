# SPDX-License-Identifier: Apache-2.0
"""What setup.py and the constraints say, read without installing anything."""

from __future__ import annotations

from pathlib import Path
import runpy
from typing import Any
from unittest import mock

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]


def options_of_setup(**environment: str) -> dict[str, Any]:
    """Arguments that setup.py gives to setuptools, in an environment with these variables."""
    with (
        mock.patch('setuptools.setup') as setup,
        mock.patch.dict('os.environ', environment),
    ):
        runpy.run_path(str(ROOT / 'setup.py'))
    (call,) = setup.call_args_list
    return dict(call.kwargs)


def constraints(name: str, python: str) -> dict[str, str]:
    """Versions that a constraints file fixes for a version of Python, by package."""
    lines = (ROOT / 'requirements' / name).read_text().splitlines()
    read = [Requirement(line) for line in lines if line and not line.startswith('#')]
    environment = {'python_version': python}
    return {
        canonicalize_name(one.name): str(one.specifier)
        for one in read
        if one.marker is None or one.marker.evaluate(environment)
    }
