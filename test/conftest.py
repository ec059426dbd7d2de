# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several test modules share."""

from __future__ import annotations

from contextlib import ExitStack
import gc
from importlib import import_module
from importlib.util import find_spec
import os
from pathlib import Path
import signal
import tempfile

from hypothesis import settings
import pytest

from test import fuzzing  # noqa: F401 - it makes the profiles known

settings.load_profile(os.environ.get('HYPOTHESIS_PROFILE', 'default'))
# A shell's background job ignores Ctrl-C, and so would every process that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
# The tests share two cores with much else: threads that wait for each other lose by it.
os.environ.setdefault('OMP_NUM_THREADS', '1')
# Triton comes with torch for GPUs. Loaded after libOSMesa, it ends the process: both hold an LLVM.
if find_spec('triton') is not None:
    import_module('triton')


def pytest_configure(config: pytest.Config) -> None:
    """Give each process of the tests folders and a DDS domain of its own.

    Tests that run side by side, and what runs on this machine besides, do not meet in the logs,
    promoted models and nodes of the user.
    """
    stack = ExitStack()
    config.add_cleanup(stack.close)
    home = stack.enter_context(tempfile.TemporaryDirectory(prefix='embodied_r_test_'))
    for name in ('XDG_CACHE_HOME', 'XDG_DATA_HOME', 'XDG_STATE_HOME', 'ROS_LOG_DIR'):
        os.environ[name] = str(Path(home, name.lower()))
    stack.callback(_end_warm_servers)
    if find_spec('domain_coordinator') is not None:
        coordinator = import_module('domain_coordinator')
        os.environ['ROS_DOMAIN_ID'] = str(stack.enter_context(coordinator.domain_id()))


def _end_warm_servers() -> None:
    import_module('embodied_r_ros.serving.served').end_warm_servers()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Half as many processes again as there are cores: many tests wait for clocks and messages."""
    return max(1, len(os.sched_getaffinity(0)) * 3 // 2)


def pytest_collection_finish() -> None:
    """Spare later collections of garbage what is imported: with torch, 0.3 s for each graph."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope='session')
def footage() -> Path:
    """Folder of real footage, named by EMBODIED_R_FOOTAGE; skips without it."""
    folder = os.environ.get('EMBODIED_R_FOOTAGE', '')
    if not folder or not Path(folder).is_dir():
        pytest.skip('EMBODIED_R_FOOTAGE names no folder of real footage')
    return Path(folder)


@pytest.fixture
def red_lamps(tmp_path: Path) -> Path:
    """A detector in an ONNX file that finds what is red; skips without its libraries."""
    pytest.importorskip('onnxruntime')
    pytest.importorskip('onnx')
    from test.core.perception.onnx_models import red_detector

    return red_detector(tmp_path / 'red.onnx', (480, 640))
