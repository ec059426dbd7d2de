# SPDX-License-Identifier: Apache-2.0
"""Intrinsics from a file of camera_calibration, for cameras that publish none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, TYPE_CHECKING

from embodied_r_ros.conversions import intrinsics_from_camera_info
from embodied_r_ros.errors import ConfigError
from embodied_r_ros.yaml_files import parse_yaml
import yaml

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.geometry import Intrinsics


def read_calibration(path: Path) -> Intrinsics:
    """Intrinsics of a YAML file as ROS's camera_calibration writes it.

    Raises:
        ConfigError: There is no such file, it is none of a camera, or of a lens that is not known.
    """
    try:
        content = parse_yaml(path.read_text())
        camera = SimpleNamespace(
            width=int(content['image_width']),
            height=int(content['image_height']),
            k=_numbers(content['camera_matrix'], 9),
            d=_numbers(content['distortion_coefficients']),
            distortion_model=str(content['distortion_model']),
        )
    except OSError as error:
        msg = f'calibration {path} cannot be read ({error.strerror}): calibrate the camera'
        raise ConfigError(msg) from None
    except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        what = ' '.join(str(error).split())
        msg = f'calibration {path} is none: {what}: expected YAML of camera_calibration'
        raise ConfigError(msg) from None
    found = intrinsics_from_camera_info(camera)
    if found is None:
        msg = f'calibration {path} has no camera matrix, or is not of a plumb_bob lens'
        raise ConfigError(msg)
    return found


def _numbers(entry: Any, count: int = 0) -> list[float]:
    numbers = [float(value) for value in entry['data']]
    if count and len(numbers) != count:
        msg = f'{len(numbers)} numbers, expected {count}'
        raise ValueError(msg)
    return numbers
