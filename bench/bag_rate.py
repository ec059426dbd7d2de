# SPDX-License-Identifier: Apache-2.0
"""How fast a bag becomes keyframes, and whether memory depends on its length."""

from __future__ import annotations

from pathlib import Path
import subprocess
import sys
import tempfile
import time
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.bags.message_types import BagMessageFactory, embodied_typestore
from embodied_r_ros.bags.messages import encoded_image_to_msg, header_to_msg
from embodied_r_ros.bags.sources import open_source
from embodied_r_ros.core.keyframes.selector import KeyframeSelector
from embodied_r_ros.core.types.images import encode_image
import numpy as np
from rosbags.rosbag2 import StoragePlugin, Writer

from bench.report import peak_mb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_RATE_HZ = 30
_TYPES = {'raw': 'sensor_msgs/msg/Image', 'jpeg': 'sensor_msgs/msg/CompressedImage'}


def bag_rate(seconds: int = 10) -> dict[str, float]:
    """Speed as a multiple of real time for raw and JPEG images, and growth of memory [MB].

    Speeds are those of the wall clock, which other work on the machine slows, and those of one
    core of processor time, which it hardly does.

    Args:
        seconds: Length of the recording at 640x480, 30 Hz; memory is compared with four times it.
    """
    with tempfile.TemporaryDirectory() as folder:
        raw = _write(Path(folder, 'raw'), 'raw', seconds)
        short = _write(Path(folder, 'short'), 'jpeg', seconds)
        long = _write(Path(folder, 'long'), 'jpeg', 4 * seconds)
        speeds: dict[str, float] = {}
        for kind, bag in (('raw', raw), ('jpeg', short)):
            wall_s, core_s, peak = _measure(bag)
            speeds |= {f'{kind}_speed': seconds / wall_s, f'{kind}_core_speed': seconds / core_s}
        return {**speeds, 'memory_growth_mb': _measure(long)[2] - peak}


def _measure(bag: Path) -> tuple[float, float, float]:
    """Seconds by the clock and of the processor for a bag, start excluded, and the peak [MB].

    A process of its own reads it.
    """
    command = [sys.executable, '-m', 'bench.bag_rate', str(bag)]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    wall_s, core_s, peak = map(float, process.stdout.split())
    return wall_s, core_s, peak


def _read(bag: str) -> None:
    started, spent = time.perf_counter(), time.process_time()
    selector = KeyframeSelector()
    with open_source(bag) as source:
        for image in source:
            selector.evaluate(image)
    print(time.perf_counter() - started, time.process_time() - spent, peak_mb())


def _write(path: Path, kind: str, seconds: int) -> Path:
    """A bag as `ros2 bag record` writes it: MCAP without compression."""
    store, factory = embodied_typestore(), BagMessageFactory()
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as bag:
        topic = bag.add_connection('/image', _TYPES[kind], typestore=store)
        for index, image in enumerate(_pan(seconds * _RATE_HZ)):
            stamp_ns = index * 1_000_000_000 // _RATE_HZ
            msg: Any
            if kind == 'jpeg':
                msg = encoded_image_to_msg(factory, stamp_ns, 'eye', encode_image(image))
            else:
                msg = factory.make(
                    _TYPES[kind],
                    header=header_to_msg(factory, stamp_ns, 'eye'),
                    height=image.shape[0],
                    width=image.shape[1],
                    encoding='bgr8',
                    is_bigendian=0,
                    step=image.strides[0],
                    data=image.ravel(),
                )
            bag.write(topic, stamp_ns, store.serialize_cdr(msg, _TYPES[kind]))
    return path


def _pan(count: int) -> Iterator[NDArray[np.uint8]]:
    """A camera that pans to and fro over a large picture."""
    noise = np.random.default_rng(0).integers(0, 256, (120, 320, 3), np.uint8)
    picture = cv2.resize(noise, (2560, 960), interpolation=cv2.INTER_CUBIC)
    for index in range(count):
        x = round(960 - 960 * np.cos(index / 40))
        yield np.ascontiguousarray(picture[200:680, x : x + 640], np.uint8)


if __name__ == '__main__':
    _read(sys.argv[1])
