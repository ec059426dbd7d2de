# SPDX-License-Identifier: Apache-2.0
"""Messages that every ROS package has, as values and back: geometry, cameras, images, arms."""

from __future__ import annotations

from dataclasses import replace
import math
import re
from types import SimpleNamespace
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError, ImageError
from embodied_r_ros.common.settings import parse_yaml
from embodied_r_ros.core.types.geometry import FISHEYE_COEFFICIENTS, Intrinsics, NS_PER_S, Pose
from embodied_r_ros.core.types.images import EncodedImage, image_format
import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from embodied_r_ros.bags.message_types import MessageFactory


RAW_IMAGE, COMPRESSED_IMAGE = 'sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage'
# Messages of bags that are read as images, the best of a camera first (`bags.video`).
IMAGE_TYPES = (
    RAW_IMAGE,
    'foxglove_msgs/msg/RawImage',
    COMPRESSED_IMAGE,
    'foxglove_msgs/msg/CompressedImage',
    'foxglove_msgs/msg/CompressedVideo',
    'ffmpeg_image_transport_msgs/msg/FFMPEGPacket',
    'theora_image_transport/msg/Packet',
)


def stamp_ns_from_msg(msg: Any) -> int:
    """Nanoseconds of a builtin_interfaces Time or Duration."""
    return int(msg.sec) * NS_PER_S + int(msg.nanosec)


def stamp_to_msg(factory: MessageFactory, stamp_ns: int) -> Any:
    """Make a builtin_interfaces Time of integer nanoseconds."""
    sec, nanosec = divmod(stamp_ns, NS_PER_S)
    return factory.make('builtin_interfaces/msg/Time', sec=sec, nanosec=nanosec)


def duration_to_msg(factory: MessageFactory, duration_ns: int) -> Any:
    """Make a builtin_interfaces Duration of integer nanoseconds."""
    sec, nanosec = divmod(duration_ns, NS_PER_S)
    return factory.make('builtin_interfaces/msg/Duration', sec=sec, nanosec=nanosec)


def header_to_msg(factory: MessageFactory, stamp_ns: int, frame_id: str) -> Any:
    """Make a std_msgs Header."""
    stamp = stamp_to_msg(factory, stamp_ns)
    return factory.make('std_msgs/msg/Header', stamp=stamp, frame_id=frame_id)


def vector_to_msg(factory: MessageFactory, kind: str, xyz: tuple[float, float, float]) -> Any:
    """Make a geometry_msgs Point or Vector3, as `kind` says."""
    x, y, z = map(float, xyz)
    return factory.make(f'geometry_msgs/msg/{kind}', x=x, y=y, z=z)


def vector_from_msg(msg: Any) -> tuple[float, float, float]:
    """Components of a geometry_msgs Point or Vector3."""
    return float(msg.x), float(msg.y), float(msg.z)


def pose_to_msg(factory: MessageFactory, pose: Pose | None) -> Any:
    """Make a geometry_msgs Pose; None gives the identity."""
    position = pose.position if pose else (0.0, 0.0, 0.0)
    x, y, z, w = map(float, pose.orientation if pose else (0.0, 0.0, 0.0, 1.0))
    return factory.make(
        'geometry_msgs/msg/Pose',
        position=vector_to_msg(factory, 'Point', position),
        orientation=factory.make('geometry_msgs/msg/Quaternion', x=x, y=y, z=z, w=w),
    )


def pose_from_msg(msg: Any, frame_id: str) -> Pose:
    """Pose of a geometry_msgs Pose in the given fixed frame."""
    q = msg.orientation
    orientation = (float(q.x), float(q.y), float(q.z), float(q.w))
    return Pose(vector_from_msg(msg.position), orientation, frame_id)


def transform_from_msg(msg: Any) -> Pose:
    """Pose of the child of a geometry_msgs TransformStamped, in its parent."""
    q = msg.transform.rotation
    orientation = (float(q.x), float(q.y), float(q.z), float(q.w))
    return Pose(vector_from_msg(msg.transform.translation), orientation, msg.header.frame_id)


# Messages of where a body is. Of these, Odometry and TransformStamped name it.
STAMPED_POSES = (
    'geometry_msgs/msg/PoseStamped',
    'geometry_msgs/msg/PoseWithCovarianceStamped',
    'geometry_msgs/msg/TransformStamped',
)


def body_pose_from_msg(msg: Any) -> tuple[Pose, str]:
    """Pose of an Odometry or one of STAMPED_POSES, and the body's frame; empty: not said."""
    body = str(getattr(msg, 'child_frame_id', ''))
    if hasattr(msg, 'transform'):
        return transform_from_msg(msg), body
    pose = msg.pose if hasattr(msg.pose, 'orientation') else msg.pose.pose
    return pose_from_msg(pose, msg.header.frame_id), body


def odometry_to_msg(
    factory: MessageFactory,
    stamp_ns: int,
    pose: Pose,
    child_frame_id: str,
    velocity: tuple[tuple[float, float, float], tuple[float, float, float]],
) -> Any:
    """Make a nav_msgs Odometry with unknown covariance (all zero).

    Args:
        factory: Makes the message.
        stamp_ns: When the pose was taken.
        pose: Pose of the child in its fixed frame.
        child_frame_id: Name of the body.
        velocity: Linear [m/s] and angular [rad/s] velocity, both in the child's axes.
    """
    linear, angular = velocity
    unknown = factory.array('float64', [0.0] * 36)
    twist = factory.make(
        'geometry_msgs/msg/Twist',
        linear=vector_to_msg(factory, 'Vector3', linear),
        angular=vector_to_msg(factory, 'Vector3', angular),
    )
    return factory.make(
        'nav_msgs/msg/Odometry',
        header=header_to_msg(factory, stamp_ns, pose.frame_id),
        child_frame_id=child_frame_id,
        pose=factory.make(
            'geometry_msgs/msg/PoseWithCovariance',
            pose=pose_to_msg(factory, pose),
            covariance=unknown,
        ),
        twist=factory.make(
            'geometry_msgs/msg/TwistWithCovariance', twist=twist, covariance=unknown
        ),
    )


# Sizes of OpenCV's plumb-bob and rational models; 4 numbers are a fisheye here.
_PINHOLE_SIZES = (5, 8, 12, 14)
# Names that drivers and calibrators give them, in lower case and without separators.
_PINHOLES = {'', 'none', 'pinhole', 'plumbbob', 'rationalpolynomial', 'radtan', 'brownconrady'}
_PINHOLES |= {'modifiedbrownconrady', 'opencv', 'radialtangential'}
_FISHEYES = {'equidistant', 'equi', 'fisheye', 'kannalabrandt', 'kannalabrandt4', 'opencvfisheye'}
_LENSES = 100.0  # no camera has a focal length of so many widths, or of so small a part of one
_MOST_DISTORTION = 1e4
_SAME_ASPECT = 0.01  # by which a resized image may differ from the sensor's


class UncalibratedError(ImageError):
    """A camera_info does not say what lens the camera has."""


def camera_of_info(
    msg: Any, size: tuple[int, int] | None = None, *, is_rectified: bool = False
) -> Intrinsics:
    """Intrinsics of the images that a sensor_msgs CameraInfo goes with.

    The message describes the whole sensor: the images may be a region of it (roi), binned, or
    resized by somebody who left the message as it was. Their own size tells which.

    Args:
        msg: The CameraInfo.
        size: Width and height of the images [px]; None: as the message states.
        is_rectified: The images are rectified: P is theirs, and no distortion.

    Raises:
        UncalibratedError: There is no calibration, or one of a lens that is not known.
        ImageError: Images of this size cannot be of this sensor.
    """
    width, height = size or _stated_size(msg)
    sensor_width, sensor_height = int(msg.width) or width, int(msg.height) or height
    k = _projection(msg) if is_rectified else [float(value) for value in msg.k]
    focal = k[0], k[4]
    side = max(sensor_width, sensor_height)
    is_lens = side / _LENSES < min(focal) and max(focal) < side * _LENSES
    if not all(map(math.isfinite, k)) or not is_lens:
        text = f'camera_info is not calibrated: its focal lengths are {focal[0]} and {focal[1]}'
        raise UncalibratedError(text)
    distortion = () if is_rectified else _distortion(str(msg.distortion_model), msg.d)
    sensor = Intrinsics(sensor_width, sensor_height, k[0], k[4], k[2], k[5], distortion)
    views = [*_region(msg, sensor), sensor]
    for view in views:
        if abs(view.width - width) <= 1 and abs(view.height - height) <= 1:
            return replace(view, width=width, height=height)
    for view in views:
        if abs(width * view.height / (height * view.width) - 1) <= _SAME_ASPECT:
            return view.scaled(width, height)
    text = (
        f'camera_info is of {sensor_width}x{sensor_height}, the image {width}x{height}: '
        'neither a region of it, nor binned, nor resized'
    )
    raise ImageError(text)


def intrinsics_from_camera_info(msg: Any) -> Intrinsics | None:
    """Intrinsics of a sensor_msgs CameraInfo for images of the size that it states.

    None where it is not calibrated, or has a lens of another kind.
    """
    try:
        return camera_of_info(msg)
    except ImageError:
        return None


def is_calibrated(msg: Any) -> bool:
    """Tell whether a CameraInfo has a camera matrix, whatever its lens and size."""
    return all(map(math.isfinite, msg.k)) and msg.k[0] > 0 and msg.k[4] > 0


def is_rectified_topic(topic: str) -> bool:
    """Tell by its name whether the images of a topic are rectified, as image_proc names them."""
    words = set(re.split(r'[/_]', topic.lower()))
    return bool(words & {'rect', 'rectified', 'undistorted'})


def _stated_size(msg: Any) -> tuple[int, int]:
    if not (msg.width and msg.height):
        text = f'camera_info states a size of {msg.width}x{msg.height}'
        raise UncalibratedError(text)
    sensor = Intrinsics(int(msg.width), int(msg.height), 1.0, 1.0, 0.0, 0.0)
    view = next(iter(_region(msg, sensor)), sensor)
    return view.width, view.height


def _projection(msg: Any) -> list[float]:
    """K of the rectified images, out of P; K itself where P was left empty."""
    p = [float(value) for value in getattr(msg, 'p', ())]
    k = [*p[0:3], *p[4:7], *p[8:11]] if len(p) == 12 else []
    has_focal = bool(k) and k[0] > 0 and k[4] > 0
    return k if has_focal else [float(value) for value in msg.k]


def _region(msg: Any, sensor: Intrinsics) -> list[Intrinsics]:
    """What the region and the binning of a message leave of the sensor, where they say so."""
    roi = getattr(msg, 'roi', None)
    by = [max(1, int(getattr(msg, f'binning_{axis}', 0))) for axis in 'xy']
    view = sensor
    if roi is not None and roi.width and roi.height:
        view = sensor.cropped(
            int(roi.x_offset), int(roi.y_offset), int(roi.width), int(roi.height)
        )
    if max(by) > 1:
        view = view.scaled(max(1, view.width // by[0]), max(1, view.height // by[1]))
    return [] if view == sensor else [view]


def _distortion(model: str, d: Any) -> tuple[float, ...]:
    """Coefficients as `Intrinsics` has them.

    Raises:
        UncalibratedError: The lens is of another kind, or a coefficient is no number.
    """
    values = [float(value) for value in d]
    name = re.sub(r'[^a-z0-9]', '', model.lower())
    if not all(math.isfinite(value) and abs(value) < _MOST_DISTORTION for value in values):
        text = f'camera_info is not calibrated: its distortion is {values}'
        raise UncalibratedError(text)
    if name in _FISHEYES and not any(values[FISHEYE_COEFFICIENTS:]):
        return tuple([*values, 0.0, 0.0, 0.0, 0.0][:FISHEYE_COEFFICIENTS])
    if not any(values):
        return ()
    if name not in _PINHOLES or len(values) not in {4, *_PINHOLE_SIZES}:
        text = (
            f'camera_info has the lens {model!r} with {len(values)} coefficients: '
            'expected plumb_bob, rational_polynomial or equidistant'
        )
        raise UncalibratedError(text)
    return tuple(values) if len(values) in _PINHOLE_SIZES else (*values, 0.0)


def camera_info_to_msg(
    factory: MessageFactory, stamp_ns: int, frame_id: str, camera: Intrinsics
) -> Any:
    """Make a sensor_msgs CameraInfo."""
    k, zero = camera.matrix(), 0.0
    identity = [1.0, zero, zero, zero, 1.0, zero, zero, zero, 1.0]
    p = [camera.fx, zero, camera.cx, zero, zero, camera.fy, camera.cy, zero, zero, zero, 1.0, zero]
    return factory.make(
        'sensor_msgs/msg/CameraInfo',
        header=header_to_msg(factory, stamp_ns, frame_id),
        height=camera.height,
        width=camera.width,
        distortion_model='equidistant' if camera.is_fisheye else 'plumb_bob',
        d=factory.array('float64', list(camera.distortion)),
        k=factory.array('float64', k.ravel()),
        r=factory.array('float64', identity),
        p=factory.array('float64', p),
        binning_x=0,
        binning_y=0,
        roi=factory.make(
            'sensor_msgs/msg/RegionOfInterest',
            x_offset=0,
            y_offset=0,
            height=0,
            width=0,
            do_rectify=False,
        ),
    )


def encoded_image_to_msg(
    factory: MessageFactory, stamp_ns: int, frame_id: str, image: EncodedImage
) -> Any:
    """Make a sensor_msgs CompressedImage."""
    return factory.make(
        'sensor_msgs/msg/CompressedImage',
        header=header_to_msg(factory, stamp_ns, frame_id),
        format=image.format,
        data=factory.array('uint8', image.data),
    )


def encoded_image_from_msg(msg: Any) -> EncodedImage:
    """Bytes of a sensor_msgs CompressedImage, not decoded; its first bytes give the format."""
    data = bytes(memoryview(msg.data))
    return EncodedImage(data, image_format(data) or str(msg.format))


def intrinsics_of_arrays(width: int, height: int, k: Any, d: Any) -> Intrinsics | None:
    """Intrinsics of a row-major matrix (9) and coefficients; None: the matrix is empty."""
    k = [float(value) for value in k]
    if not k[0] or not k[4]:
        return None
    distortion = tuple(float(value) for value in d)
    if len(distortion) != FISHEYE_COEFFICIENTS and not any(distortion):
        distortion = ()
    return Intrinsics(width, height, k[0], k[4], k[2], k[5], distortion)


def joint_state_to_msg(
    factory: MessageFactory,
    stamp_ns: int,
    names: Sequence[str],
    positions: Sequence[float],
    velocities: Sequence[float] = (),
) -> Any:
    """Make a sensor_msgs JointState [rad or m, per second]; no velocities: not known."""
    return factory.make(
        'sensor_msgs/msg/JointState',
        header=header_to_msg(factory, stamp_ns, ''),
        name=list(names),
        position=factory.array('float64', list(positions)),
        velocity=factory.array('float64', list(velocities)),
        effort=factory.array('float64', []),
    )


def pose_stamped_to_msg(factory: MessageFactory, stamp_ns: int, pose: Pose) -> Any:
    """Make a geometry_msgs PoseStamped."""
    return factory.make(
        'geometry_msgs/msg/PoseStamped',
        header=header_to_msg(factory, stamp_ns, pose.frame_id),
        pose=pose_to_msg(factory, pose),
    )


def transforms_to_msg(factory: MessageFactory, stamp_ns: int, frames: Mapping[str, Pose]) -> Any:
    """Make a tf2_msgs TFMessage: each frame with its pose in its parent."""
    transforms = []
    for child, pose in frames.items():
        x, y, z, w = map(float, pose.orientation)
        transforms.append(
            factory.make(
                'geometry_msgs/msg/TransformStamped',
                header=header_to_msg(factory, stamp_ns, pose.frame_id),
                child_frame_id=child,
                transform=factory.make(
                    'geometry_msgs/msg/Transform',
                    translation=vector_to_msg(factory, 'Vector3', pose.position),
                    rotation=factory.make('geometry_msgs/msg/Quaternion', x=x, y=y, z=z, w=w),
                ),
            )
        )
    return factory.make('tf2_msgs/msg/TFMessage', transforms=transforms)


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
        msg = f'calibration {path} is not usable: {what}: expected YAML of camera_calibration'
        raise ConfigError(msg) from None
    try:
        return camera_of_info(camera)
    except ImageError as error:
        msg = f'calibration {path} cannot be used: {error}'
        raise ConfigError(msg) from None


def _numbers(entry: Any, count: int = 0) -> list[float]:
    numbers = [float(value) for value in entry['data']]
    if count and len(numbers) != count:
        msg = f'{len(numbers)} numbers, expected {count}'
        raise ValueError(msg)
    return numbers
