# SPDX-License-Identifier: Apache-2.0
"""Recordings of real cameras with true poses, and depth where there is some.

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
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.keyframes.overlap import covisibility
from embodied_r_ros.core.types.geometry import (
    BODY_FROM_OPTICAL,
    Intrinsics,
    matrix_from_quaternion,
    Pose,
    quaternion_from_matrix,
)
from embodied_r_ros.core.types.images import StampedImage
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

_TUM_3 = Intrinsics(640, 480, 535.4, 539.2, 320.1, 247.6)
_TUM_DEPTH_UNIT_M, _MILLIMETRE_M = 1 / 5000, 1e-3
_TRUTH_WIDTH_PX = 320  # depth is thinned to at most this for the truth of overlap
# Rates of sequences without stamps [Hz].
_RATES_HZ = {'drone_hallway': 10.0}
_USUAL_RATE_HZ = 30.0
FAR_FROM_THRESHOLD = 0.05  # nearer, truth is not known well enough for a decision to count


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
