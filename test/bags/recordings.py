# SPDX-License-Identifier: Apache-2.0
"""Recordings as other software leaves them: a camera that turns to the left by known angles."""

from __future__ import annotations

from functools import cache, lru_cache
import math
from typing import Any, TYPE_CHECKING

import cv2
from mcap.writer import Writer as McapWriter
import numpy as np
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import get_typestore, Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    Message = tuple[str, str, int, Any]  # topic, type, time of receipt [ns], message

STORE = get_typestore(Stores.ROS2_JAZZY)
TYPES = STORE.types
T0_NS = 1_700_000_000_000_000_000
MS = 1_000_000
COUNT, STEP_DEG = 24, 4.0
PERIOD_NS = 100 * MS
IMAGE, COMPRESSED = 'sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage'
INFO, ODOMETRY = 'sensor_msgs/msg/CameraInfo', 'nav_msgs/msg/Odometry'
TRANSFORMS = 'tf2_msgs/msg/TFMessage'
TOPIC = '/cam/image_raw'
OPTICAL = (-0.5, 0.5, -0.5, 0.5)
LEFT_OPTICAL = (-math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5))  # a camera that looks to the left


@cache
def panorama() -> NDArray[np.uint8]:
    """Patches all around the camera, ten pixels a degree. Shape (900, 3600, 3)."""
    rng = np.random.default_rng(11)
    picture = np.full((900, 3600, 3), 90, np.uint8)
    for _ in range(2500):
        x, y, side = int(rng.integers(3600)), int(rng.integers(900)), int(rng.integers(6, 40))
        colour = tuple(int(value) for value in rng.integers(0, 255, 3))
        cv2.rectangle(picture, (x, y), (x + side, y + side), colour, -1)
    return cv2.GaussianBlur(picture, (3, 3), 0)  # type: ignore[return-value]


@lru_cache(maxsize=256)
def view(
    yaw_deg: float, width: int = 320, height: int = 240, f: float = 160.0, *, fisheye: bool = False
) -> NDArray[np.uint8]:
    """What a camera sees after a turn to the left: a pinhole, or an equidistant lens."""
    u, v = np.meshgrid(np.arange(width) - (width - 1) / 2, np.arange(height) - (height - 1) / 2)
    x, y, z = u / f, v / f, np.ones_like(u)
    if fisheye:
        angle = np.hypot(u, v) / f
        scale = np.where(angle > 0, np.sin(angle) / np.maximum(angle, 1e-9), 1.0)
        x, y, z = u / f * scale, v / f * scale, np.cos(angle)
    azimuth = np.degrees(np.arctan2(x, z)) - yaw_deg
    elevation = np.degrees(np.arctan2(y, np.hypot(x, z)))
    columns, rows = (azimuth % 360) * 10, elevation * 10 + 450
    seen = cv2.remap(
        panorama(),
        columns.astype(np.float32),
        rows.astype(np.float32),
        cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_WRAP,
    )
    seen.setflags(write=False)  # many tests share it
    return seen  # type: ignore[return-value]


def header(stamp_ns: int, frame: str = 'eye') -> Any:
    """A std_msgs Header."""
    stamp = TYPES['builtin_interfaces/msg/Time'](*divmod(stamp_ns, 10**9))
    return TYPES['std_msgs/msg/Header'](stamp, frame)


def image(stamp_ns: int, pixels: NDArray[Any], encoding: str = 'bgr8', height: int = 0) -> Any:
    """A sensor_msgs Image; `height` where the rows of bytes are others than those of pixels."""
    pixels = np.ascontiguousarray(pixels)
    data = pixels.view(np.uint8).ravel()
    height = height or pixels.shape[0]
    step = pixels.strides[0]
    return TYPES[IMAGE](header(stamp_ns), height, pixels.shape[1], encoding, 0, step, data)


def compressed_msg(stamp_ns: int, data: bytes, text: str = 'jpeg') -> Any:
    """A sensor_msgs CompressedImage."""
    return TYPES[COMPRESSED](header(stamp_ns), text, np.frombuffer(data, np.uint8))


def camera_info(
    stamp_ns: int,
    size: tuple[int, int] = (320, 240),
    f: float = 160.0,
    d: tuple[float, ...] = (0.0,) * 5,
    model: str = 'plumb_bob',
    *,
    p: float | None = None,
    binning: int = 0,
    roi: tuple[int, int, int, int] = (0, 0, 0, 0),
    frame: str = 'eye',
) -> Any:
    """A sensor_msgs CameraInfo of a centred lens; `p` is the focal length of P."""
    width, height = size
    centre = (width - 1) / 2, (height - 1) / 2
    k = np.array([f, 0, centre[0], 0, f, centre[1], 0, 0, 1])
    g = f if p is None else p
    projection = np.array([g, 0, centre[0], 0, 0, g, centre[1], 0, 0, 0, 1, 0.0])
    region = TYPES['sensor_msgs/msg/RegionOfInterest'](roi[0], roi[1], roi[3], roi[2], False)
    about = header(stamp_ns, frame), height, width, model, np.array(d, np.float64)
    return TYPES[INFO](*about, k, np.eye(3).ravel(), projection, binning, binning, region)


def quaternion(x: float, y: float, z: float, w: float) -> Any:
    """A geometry_msgs Quaternion."""
    return TYPES['geometry_msgs/msg/Quaternion'](x, y, z, w)


def odometry(stamp_ns: int, x: float) -> Any:
    """A nav_msgs Odometry of a base that drives straight on."""
    point, vector = TYPES['geometry_msgs/msg/Point'], TYPES['geometry_msgs/msg/Vector3']
    pose = TYPES['geometry_msgs/msg/Pose'](point(x, 0.0, 0.0), quaternion(0.0, 0.0, 0.0, 1.0))
    still = TYPES['geometry_msgs/msg/Twist'](vector(0.0, 0.0, 0.0), vector(0.0, 0.0, 0.0))
    zeros = np.zeros(36)
    return TYPES[ODOMETRY](
        header(stamp_ns, 'odom'),
        'base_link',
        TYPES['geometry_msgs/msg/PoseWithCovariance'](pose, zeros),
        TYPES['geometry_msgs/msg/TwistWithCovariance'](still, zeros),
    )


def transforms(
    stamp_ns: int, parent: str, child: str, xyz: tuple[float, ...], turn: tuple[float, ...]
) -> Any:
    """A tf2_msgs TFMessage of one transform."""
    place = TYPES['geometry_msgs/msg/Vector3'](*xyz)
    moved = TYPES['geometry_msgs/msg/Transform'](place, quaternion(*turn))
    stamped = TYPES['geometry_msgs/msg/TransformStamped'](header(stamp_ns, parent), child, moved)
    return TYPES[TRANSFORMS]([stamped])


def times() -> list[int]:
    """Stamps of the images [ns]."""
    return [T0_NS + index * PERIOD_NS for index in range(COUNT)]


def turning(
    topic: str = TOPIC, step_deg: float = STEP_DEG, encoding: str = 'bgr8', **lens: Any
) -> list[Message]:
    """Raw images of a camera that turns."""
    return [
        (topic, IMAGE, ns, image(ns, view(i * step_deg, **lens), encoding))
        for i, ns in enumerate(times())
    ]


def pack(make: Callable[[int, NDArray[np.uint8]], bytes], text: str = 'jpeg') -> list[Message]:
    """Compressed images of a camera that turns, as `make` packs each."""
    return [
        (
            f'{TOPIC}/compressed',
            COMPRESSED,
            ns,
            compressed_msg(ns, make(i, view(i * STEP_DEG)), text),
        )
        for i, ns in enumerate(times())
    ]


def cdr(type_name: str, msg: Any) -> bytes:
    """A message as it is in a bag."""
    return bytes(STORE.serialize_cdr(msg, type_name))


def write_bag(
    path: Path,
    messages: Iterable[Message],
    plugin: StoragePlugin = StoragePlugin.MCAP,
    *,
    silent: Iterable[tuple[str, str]] = (),
    prepare: Callable[[Writer], None] = lambda writer: None,
) -> Path:
    """A rosbag2 folder; `silent` are topics without messages."""
    writer = Writer(path, version=9, storage_plugin=plugin)
    prepare(writer)
    with writer:
        topics = {
            topic: writer.add_connection(topic, kind, typestore=STORE) for topic, kind in silent
        }
        for topic, kind, ns, msg in sorted(messages, key=lambda message: message[2]):
            if topic not in topics:
                topics[topic] = writer.add_connection(topic, kind, typestore=STORE)
            writer.write(topics[topic], ns, cdr(kind, msg))
    return path


def definition(type_name: str) -> tuple[str, str]:
    """Encoding and text of a standard type's definition."""
    return 'ros2msg', STORE.generate_msgdef(type_name, ros_version=2)[0]


def write_mcap(
    path: Path,
    messages: Iterable[Message],
    *,
    schema: Callable[[str], tuple[str, str]] = definition,
    before: Callable[[McapWriter], None] = lambda writer: None,
    profile: str = 'ros2',
    qos: str = '',
    **options: Any,
) -> Path:
    """A bare MCAP file, in the order of the messages."""
    with path.open('wb') as file:
        writer = McapWriter(file, **options)
        writer.start(profile=profile, library='test')
        before(writer)
        channels: dict[str, int] = {}
        for topic, kind, ns, msg in messages:
            if topic not in channels:
                encoding, text = schema(kind)
                number = writer.register_schema(kind, encoding, text.encode())
                about = {'offered_qos_profiles': qos}
                channels[topic] = writer.register_channel(topic, 'cdr', number, about)
            data = msg if isinstance(msg, bytes) else cdr(kind, msg)
            writer.add_message(channels[topic], ns, data, ns)
        writer.finish()
    return path
