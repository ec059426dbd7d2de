# SPDX-License-Identifier: Apache-2.0
"""Recordings of real cameras with true poses, and depth where there is some; and bags of them.

A sequence is a folder with `images/`, one pose of the optical axes per image (`poses.txt`: rows of
a 4x4 matrix; `poses_tum.txt`: time, position, quaternion), intrinsics (`K.txt`,
`intrinsics.json`; without either, those of the TUM RGB-D benchmark's third camera) and, where the
sensor gave it, `depth/` with 16-bit images.
"""

from __future__ import annotations

from dataclasses import dataclass
import json
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.bags.depth import depth_to_msg
from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.messages import camera_info_to_msg, encoded_image_to_msg, odometry_to_msg
from embodied_r_ros.bags.writer import BagWriter, RELIABLE_QOS, SENSOR_DATA_QOS
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.keyframes.overlap import covisibility
from embodied_r_ros.core.types.geometry import (
    BODY_FROM_OPTICAL,
    Intrinsics,
    matrix_from_quaternion,
    Pose,
    quaternion_from_matrix,
    rays_of_pixels,
)
from embodied_r_ros.core.types.images import encode_image, StampedImage
from embodied_r_ros.core.types.poses import compose_poses
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_TUM_3 = Intrinsics(640, 480, 535.4, 539.2, 320.1, 247.6)
_TUM_DEPTH_UNIT_M, _MILLIMETRE_M = 1 / 5000, 1e-3
_TRUTH_WIDTH_PX = 320  # depth is thinned to at most this for the truth of overlap
# Rates of sequences without stamps [Hz].
_RATES_HZ = {'drone_hallway': 10.0}
_USUAL_RATE_HZ = 30.0
FAR_FROM_THRESHOLD = 0.05  # nearer, truth is not known well enough for a decision to count

_OPTICAL, _LINK = 'camera_optical_frame', 'camera_link'
_TOPICS = {
    '/camera_info': ('sensor_msgs/msg/CameraInfo', SENSOR_DATA_QOS),
    '/image/compressed': ('sensor_msgs/msg/CompressedImage', SENSOR_DATA_QOS),
    '/odom': ('nav_msgs/msg/Odometry', RELIABLE_QOS),
    '/depth': ('sensor_msgs/msg/Image', SENSOR_DATA_QOS),
}
_FROM_NS = 1_000_000_000  # a stamp of zero means 'unset' in ROS
_AT_REST = ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
_QUALITY = 95
_FRAME = 'world'
_FLOOR_PERCENT = 1.0  # of what depth shows lies lower than the floor, by mistake


@dataclass(frozen=True)
class RealShot:
    """One image with what is known of it."""

    index: int
    stamp_ns: int
    image: NDArray[np.uint8]  # (H, W, 3), BGR
    pose: Pose  # of the camera link, true
    intrinsics: Intrinsics  # of `image`
    depth: NDArray[np.float32] | None = None  # (h, w) [m], 0: a hole; None: no sensor
    depth_camera: Intrinsics | None = None  # of `depth`

    def stamped(self) -> StampedImage:
        """The image as a camera without odometry gives it."""
        return StampedImage(self.index, self.stamp_ns, self.image, intrinsics=self.intrinsics)


@dataclass(frozen=True)
class TrueOverlap:
    """Smaller of the two directed shares of view, 0..1, as far as depth tells."""

    with_holes: float  # of what has depth, what lies where the other view has depth
    filled: float  # a hole is as far as the nearest point that is known

    @property
    def middle(self) -> float:
        """The value between both."""
        return (self.with_holes + self.filled) / 2

    def decides(self, threshold: float) -> bool:
        """Whether both agree on their side of a threshold, and lie well away from it."""
        a, b = self.with_holes - threshold, self.filled - threshold
        return a * b > 0 and min(abs(a), abs(b)) > FAR_FROM_THRESHOLD


def find_sequences(folder: Path) -> list[Path]:
    """Folders of sequences in a folder, by name.

    Raises:
        InputError: There are none.
    """
    folders = sorted(path.parent for path in folder.glob('*/poses*.txt'))
    if not folders:
        msg = f'{folder} holds no sequence: expected folders with images/ and poses.txt'
        raise InputError(msg)
    return folders


def read_sequence(folder: Path) -> Iterator[RealShot]:
    """Read the images of a sequence in order, each with its pose and depth."""
    files = sorted((folder / 'images').iterdir())
    stamps_ns, poses, depth_unit_m = _read_poses(folder, len(files))
    for index, (file, stamp_ns, pose) in enumerate(zip(files, stamps_ns, poses, strict=True)):
        image = _read_image(file, cv2.IMREAD_COLOR)
        intrinsics = _read_intrinsics(folder, image.shape[1], image.shape[0])
        depth, depth_camera = None, None
        depth_file = folder / 'depth' / f'{file.stem}.png'
        if depth_file.exists():
            raw = _read_image(depth_file, cv2.IMREAD_UNCHANGED).astype(np.float32)
            depth, depth_camera = _thin(raw * np.float32(depth_unit_m), intrinsics)
        yield RealShot(
            index, stamp_ns, np.asarray(image, np.uint8), pose, intrinsics, depth, depth_camera
        )


def _read_image(file: Path, flags: int) -> NDArray[Any]:
    image = cv2.imread(str(file), flags)
    if image is None:
        msg = f'{file} is no image'
        raise InputError(msg)
    return image


def true_overlap(first: RealShot, second: RealShot) -> TrueOverlap:
    """What two images of a sequence with depth share."""
    assert first.depth is not None
    assert second.depth is not None
    assert first.depth_camera
    camera = first.depth_camera
    with_holes = covisibility(first.depth, first.pose, second.depth, second.pose, camera)
    filled = [_without_holes(shot.depth) for shot in (first, second) if shot.depth is not None]
    whole = covisibility(filled[0], first.pose, filled[1], second.pose, camera)
    # A hole shares nothing, so that shares are of what has depth.
    known = [float((shot.depth > 0).mean()) for shot in (first, second) if shot.depth is not None]
    of_known = [share / max(part, 1e-9) for share, part in zip(with_holes, known, strict=True)]
    return TrueOverlap(min(1.0, *of_known), min(whole))


def _without_holes(depth: NDArray[np.float32]) -> NDArray[np.float32]:
    """Depth in which each hole is as far as the nearest known point of the image."""
    holes = (depth <= 0).astype(np.uint8)
    if not holes.any() or holes.all():
        return depth
    _, labels = cv2.distanceTransformWithLabels(
        holes, cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL
    )
    by_label = np.zeros(int(labels.max()) + 1, np.float32)
    by_label[labels[holes == 0]] = depth[holes == 0]
    return np.asarray(by_label[labels], np.float32)


def _thin(
    depth: NDArray[np.float32], intrinsics: Intrinsics
) -> tuple[NDArray[np.float32], Intrinsics]:
    """Every n-th pixel of a depth image, and the camera that sees those."""
    # Depth may hold every n-th pixel of the image already.
    step = intrinsics.width // depth.shape[1]
    more = max(1, -(-depth.shape[1] // _TRUTH_WIDTH_PX))
    thin = np.ascontiguousarray(depth[::more, ::more])
    n = step * more
    camera = Intrinsics(
        thin.shape[1],
        thin.shape[0],
        intrinsics.fx / n,
        intrinsics.fy / n,
        intrinsics.cx / n,
        intrinsics.cy / n,
    )
    return thin, camera


def _read_poses(folder: Path, count: int) -> tuple[list[int], list[Pose], float]:
    """Stamps [ns], poses of the camera link, and the unit of depth [m]."""
    tum = folder / 'poses_tum.txt'
    if tum.exists():
        rows = np.loadtxt(tum, ndmin=2)
        matrices = [(matrix_from_quaternion(tuple(row[4:8])), row[1:4]) for row in rows]
        stamps = [round(float(row[0]) * 1e9) for row in rows]
        unit_m = _TUM_DEPTH_UNIT_M
    else:
        whole = np.loadtxt(folder / 'poses.txt', ndmin=2).reshape(-1, 4, 4)
        matrices = [(matrix[:3, :3], matrix[:3, 3]) for matrix in whole]
        rate_hz = _RATES_HZ.get(folder.name, _USUAL_RATE_HZ)
        stamps = [round(index * 1e9 / rate_hz) for index in range(len(whole))]
        unit_m = _MILLIMETRE_M
    if len(matrices) != count:
        msg = f'{folder} holds {count} images and {len(matrices)} poses: expected as many'
        raise InputError(msg)
    return stamps, [_link_pose(*matrix) for matrix in matrices], unit_m


def _link_pose(rotation: NDArray[np.float64], position: NDArray[np.float64]) -> Pose:
    """Pose of the camera link from that of the optical axes."""
    x, y, z = (float(value) for value in position)
    turn = rotation @ BODY_FROM_OPTICAL.T
    return Pose((x, y, z), quaternion_from_matrix(turn), 'world')


def _read_intrinsics(folder: Path, width: int, height: int) -> Intrinsics:
    if (folder / 'K.txt').exists():
        k = np.loadtxt(folder / 'K.txt')
        return Intrinsics(width, height, k[0, 0], k[1, 1], k[0, 2], k[1, 2])
    if (folder / 'intrinsics.json').exists():
        return _intrinsics_of_json(folder / 'intrinsics.json', width, height)
    return _TUM_3.scaled(width, height)


def _intrinsics_of_json(file: Path, width: int, height: int) -> Intrinsics:
    stated = json.loads(file.read_text())
    k = np.asarray(stated['CameraMatrix'], np.float64)
    distortion = tuple(float(value) for value in stated['DistortionCoefficients'])
    return Intrinsics(width, height, k[0, 0], k[1, 1], k[0, 2], k[1, 2], distortion)


def write_bag(folder: Path, bag: Path) -> None:
    """Write a sequence as a rosbag2 folder.

    Raises:
        InputError: It is none, or the bag cannot be written.
    """
    make = BagMessageFactory()
    has_depth = (folder / 'depth').is_dir()
    with BagWriter(bag) as writer:
        for topic, (kind, qos) in _TOPICS.items():
            if has_depth or topic != '/depth':
                writer.add_topic(topic, kind, qos)
        upright = _upright(list(read_sequence(folder)))
        for shot in read_sequence(folder):
            stamp_ns = shot.stamp_ns + _FROM_NS
            info = camera_info_to_msg(make, stamp_ns, _OPTICAL, shot.intrinsics)
            writer.write('/camera_info', info, stamp_ns)
            image = encode_image(shot.image, _QUALITY)
            writer.write(
                '/image/compressed',
                encoded_image_to_msg(make, stamp_ns, _OPTICAL, image),
                stamp_ns,
            )
            odometry = odometry_to_msg(
                make, stamp_ns, compose_poses(upright, shot.pose), _LINK, _AT_REST
            )
            writer.write('/odom', odometry, stamp_ns)
            if shot.depth is not None:
                depth = depth_to_msg(make, stamp_ns, _OPTICAL, shot.depth)
                writer.write('/depth', depth, stamp_ns)


def _upright(shots: Sequence[RealShot]) -> Pose:
    """Pose of a sequence's world in one whose z axis points up from the floor.

    Cameras are upright on average; the axis of their world that is nearest to it is up. The floor
    is the lowest of what depth shows; without depth the height stays as it is.
    """
    rotations = [shot.pose.rotation() for shot in shots]
    up = np.mean([rotation[:, 2] for rotation in rotations], axis=0)
    axis = int(np.argmax(np.abs(up)))
    z = np.zeros(3)
    z[axis] = np.sign(up[axis])
    x = np.roll(np.abs(z), 1)
    turn = np.stack([x, np.cross(z, x), z])
    heights = [_heights(shot, turn) for shot in shots if shot.depth is not None]
    floor = np.percentile(np.concatenate(heights), _FLOOR_PERCENT) if heights else 0.0
    return Pose((0.0, 0.0, -float(floor)), quaternion_from_matrix(turn), _FRAME)


def _heights(shot: RealShot, turn: NDArray[np.float64]) -> NDArray[np.float64]:
    """Heights of what the depth of a shot shows, every tenth pixel. Shape (N,)."""
    assert shot.depth is not None
    assert shot.depth_camera
    rows, columns = (
        part.ravel()
        for part in np.mgrid[0 : shot.depth.shape[0] : 10, 0 : shot.depth.shape[1] : 10]
    )
    depth = shot.depth[rows, columns]
    rays = rays_of_pixels(shot.depth_camera, np.column_stack([columns, rows]).astype(np.float64))
    points = (rays * depth[:, None])[depth > 0] @ shot.pose.rotation().T + shot.pose.position
    return np.asarray(points @ turn[2], np.float64)
