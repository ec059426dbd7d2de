# SPDX-License-Identifier: Apache-2.0
"""Cameras, images and keyframes."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.conversions.standard import (
    header_to_msg,
    pose_from_msg,
    pose_to_msg,
    stamp_ns_from_msg,
)
from embodied_r_ros.geometry import Intrinsics
from embodied_r_ros.images import EncodedImage, image_format
from embodied_r_ros.keyframes import Keyframe, KeyframeReason

if TYPE_CHECKING:
    from embodied_r_ros.recordings.message_types import MessageFactory

_M = 'embodied_r_msgs/msg/'
# Distortion models that OpenCV takes by their number of coefficients; empty: not stated.
_DISTORTION_SIZES = (4, 5, 8, 12, 14)
_PLUMB_BOB = ('', 'plumb_bob', 'rational_polynomial')


def intrinsics_from_camera_info(msg: Any) -> Intrinsics | None:
    """Intrinsics of a sensor_msgs CameraInfo.

    None where it is not calibrated (K all zero), or has a lens of another kind (fisheye, or a
    number of coefficients that no model has).
    """
    known = msg.distortion_model in _PLUMB_BOB and len(msg.d) in _DISTORTION_SIZES
    if any(msg.d) and not known:
        return None
    return _intrinsics(int(msg.width), int(msg.height), msg.k, msg.d)


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
        distortion_model='plumb_bob',
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
    """Bytes of a sensor_msgs CompressedImage, not decoded; the format is told by the bytes."""
    data = bytes(memoryview(msg.data))
    return EncodedImage(data, image_format(data) or str(msg.format))


def _intrinsics(width: int, height: int, k: Any, d: Any) -> Intrinsics | None:
    k = [float(value) for value in k]
    if not k[0] or not k[4]:
        return None
    distortion = tuple(float(value) for value in d)
    distortion = distortion if any(distortion) else ()
    return Intrinsics(width, height, k[0], k[4], k[2], k[5], distortion)


def keyframe_to_msg(factory: MessageFactory, keyframe: Keyframe) -> Any:
    """Make a Keyframe message."""
    camera = keyframe.intrinsics
    return factory.make(
        _M + 'Keyframe',
        header=header_to_msg(factory, keyframe.stamp_ns, keyframe.frame_id),
        episode_id=keyframe.episode_id,
        camera=keyframe.camera,
        id=keyframe.id,
        reference_id=keyframe.reference_id,
        overlap=float('nan') if keyframe.overlap is None else float(keyframe.overlap),
        inliers=keyframe.inliers,
        reason=keyframe.reason.value,
        dropped_images=keyframe.dropped_images,
        image=encoded_image_to_msg(factory, keyframe.stamp_ns, keyframe.frame_id, keyframe.image),
        k=factory.array('float64', camera.matrix().ravel() if camera else [0.0] * 9),
        d=factory.array('float64', list(camera.distortion) if camera else []),
        has_pose=keyframe.pose is not None,
        pose=pose_to_msg(factory, keyframe.pose),
        pose_frame_id=keyframe.pose.frame_id if keyframe.pose else '',
    )


def keyframe_from_msg(msg: Any) -> Keyframe:
    """Keyframe of its message.

    The size of the intrinsics is read from the image; recorded without it, they are not known.

    Raises:
        ImageError: Intrinsics are given and the image cannot be decoded.
    """
    image = encoded_image_from_msg(msg.image)
    intrinsics = None
    if any(msg.k) and image.data:
        height, width = image.decode().shape[:2]
        intrinsics = _intrinsics(width, height, msg.k, msg.d)
    return Keyframe(
        id=int(msg.id),
        stamp_ns=stamp_ns_from_msg(msg.header.stamp),
        image=image,
        reason=KeyframeReason(msg.reason),
        reference_id=int(msg.reference_id),
        overlap=None if msg.overlap != msg.overlap else float(msg.overlap),  # NaN: unset
        inliers=int(msg.inliers),
        camera=msg.camera,
        frame_id=msg.header.frame_id,
        intrinsics=intrinsics,
        pose=pose_from_msg(msg.pose, msg.pose_frame_id) if msg.has_pose else None,
        episode_id=msg.episode_id,
        dropped_images=int(msg.dropped_images),
    )
