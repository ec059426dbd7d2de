# SPDX-License-Identifier: Apache-2.0
"""Simulated worlds with known truth; an optional extra (`pip install '.[sim]'`)."""

from importlib.util import find_spec
import os

from embodied_r_ros.common.errors import ConfigError

# Read once, when mujoco is imported: render on the CPU unless the user chose otherwise.
os.environ.setdefault('MUJOCO_GL', 'osmesa')


def require_simulator() -> None:
    """Make sure that MuJoCo is there and can render.

    Raises:
        ConfigError: It is not, or the library that it renders with is missing.
    """
    try:
        import mujoco  # noqa: F401
    # PyOpenGL has no own error for a missing library: it fails on the first function of it.
    except (ImportError, AttributeError) as error:
        library = os.environ['MUJOCO_GL']
        msg = (
            f'simulated worlds need MuJoCo with {library} ({error}): '
            'pip install mujoco==3.3.0, apt-get install libosmesa6'
        )
        raise ConfigError(msg) from None


def require_arm() -> None:
    """Make sure that MuJoCo is there and can render, and that Meta-World's arm is there.

    Raises:
        ConfigError: Something is missing.
    """
    require_simulator()
    if find_spec('metaworld') is None:
        msg = 'the simulated arm needs the robot of Meta-World: pip install metaworld==3.1.1'
        raise ConfigError(msg)
