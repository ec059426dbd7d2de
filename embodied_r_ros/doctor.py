# SPDX-License-Identifier: Apache-2.0
"""Checks of an installation, each with what to do where it fails. Nothing here needs ROS."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from importlib import import_module
from importlib.util import find_spec
import os
from pathlib import Path
import shutil
import sys
from typing import Any

from embodied_r_ros.errors import EmbodiedRError
from embodied_r_ros.models.digest import model_digest
from embodied_r_ros.resources import interface_path, shared_path

_MIN_FREE_GB = 2.0
_GB = 1024**3


@dataclass(frozen=True)
class Check:
    """The outcome of one check."""

    ok: bool
    detail: str  # what was found
    remedy: str = ''  # what to do; empty where all is well
    values: dict[str, Any] = field(default_factory=dict)  # what was measured

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; what was measured stands beside the rest."""
        value = asdict(self)
        return {**{k: v for k, v in value.items() if k != 'values'}, **self.values}


def installation_checks() -> dict[str, Check]:
    """Everything that can be checked without starting anything."""
    return {
        'python': _python(),
        'ros': _ros(),
        'messages': _messages(),
        'model': _model(),
        'model_server': _program('transformers', 'install requirements/train.txt'),
        'simulator': _simulator(),
        'disk': _disk(),
    }


def _python() -> Check:
    version = '.'.join(map(str, sys.version_info[:3]))
    ok = (3, 10) <= sys.version_info[:2] <= (3, 13)
    return Check(ok, f'Python {version}', '' if ok else 'use Python 3.10 to 3.13')


def _ros() -> Check:
    distro = os.environ.get('ROS_DISTRO', '')
    try:
        where = import_module('rclpy').__file__
    except ImportError as error:
        return Check(False, f'rclpy is not there ({error})', 'source ROS 2, or run `make setup`')
    middleware = os.environ.get('RMW_IMPLEMENTATION', '') or 'default middleware'
    name = f'ROS 2 {distro}' if distro else 'ROS 2 from wheels'
    return Check(True, f'{name}, {middleware}, {where}')


def _messages() -> Check:
    remedy = 'colcon build --packages-select embodied_r_msgs, and source the workspace'
    try:
        # In a clone, the folder of its definitions can be imported too: a package without a file.
        compiled = import_module('embodied_r_msgs').__file__ is not None
        definitions = interface_path('msg')
    except (ImportError, EmbodiedRError) as error:
        return Check(False, f'embodied_r_msgs is not there ({error})', remedy)
    if not compiled:
        return Check(False, f'embodied_r_msgs is not compiled: only {definitions}', remedy)
    return Check(True, f'embodied_r_msgs, definitions in {definitions}')


def _model() -> Check:
    try:
        folder = shared_path('models', 'nano')
        return Check(True, f'{folder}, {model_digest(folder)}')
    except (EmbodiedRError, OSError) as error:
        return Check(False, str(error), 'fetch the models that ship with the package')


def _program(name: str, remedy: str) -> Check:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get('PATH', '')])
    found = shutil.which(name, path=path)
    return Check(bool(found), found or f'{name} is not installed', '' if found else remedy)


def _simulator() -> Check:
    if find_spec('mujoco') is None:
        return Check(False, 'mujoco is not installed', 'install requirements/sim.txt')
    return Check(True, 'mujoco')


def _disk() -> Check:
    free_gb = shutil.disk_usage(Path.home()).free / _GB
    ok = free_gb >= _MIN_FREE_GB
    remedy = '' if ok else f'make room: episodes need at least {_MIN_FREE_GB:.0f} GB'
    return Check(ok, f'{free_gb:.1f} GB free in {Path.home()}', remedy)


def transport_check(measured: dict[str, Any]) -> Check:
    """Judge what `nodes.transport_check.measure` counted."""
    sent, received = measured['sent'], measured['received']
    detail = f'{received} of {sent} images arrived ({measured["reliability"]})'
    remedy = (
        'set reliable QoS on the camera, use image_transport compressed, or raise '
        'net.core.rmem_max; docs/on_a_robot.md has the commands'
    )
    return Check(received == sent, detail, '' if received == sent else remedy, measured)


def table(checks: dict[str, Check]) -> str:
    """The checks as text."""
    lines = []
    for name, check in checks.items():
        lines.append(f'{"ok" if check.ok else "FAIL":<5} {name:<13} {check.detail}')
        if check.remedy:
            lines.append(f'{"":<19} -> {check.remedy}')
    return '\n'.join(lines)
