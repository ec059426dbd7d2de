# SPDX-License-Identifier: Apache-2.0
"""Where a camera is at the stamps of its images, by odometry or by transforms (tf2).

Transforms are taken from `/tf` and `/tf_static` into the same tree that reads them from bags.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
import math
import threading
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.messages import body_pose_from_msg, stamp_ns_from_msg, transform_from_msg
from embodied_r_ros.common.errors import ConfigError, ImageError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.types.poses import (
    camera_of_body,
    NoPose,
    PoseBuffer,
    TransformTree,
)
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.diagnostics import Meter
from embodied_r_ros.nodes.topics import installed_class
from nav_msgs.msg import Odometry

if TYPE_CHECKING:
    from collections.abc import Callable

    from embodied_r_ros.core.types.geometry import Pose
    from embodied_r_ros.nodes.node_base import ManagedNode

_GONE_S = 1.0  # what was silent for so long is not waited for
_TRANSFORMS = 'tf2_msgs/msg/TFMessage'
_GIVE_UP_AFTER = 3  # waits in vain, one after the other
_TRY_AGAIN_S = 2.0  # so often one waits all the same: what comes a little late is seen so alone


@dataclass(frozen=True)
class PoseConfig(Settings):
    """Where the pose of a camera comes from."""

    pose_source: str = setting(
        'auto',
        'odom: odometry, with the mount of the camera from tf; tf: tf alone; auto: odom, else tf',
        choices=('odom', 'tf', 'auto'),
        read_only=True,
    )
    fixed_frame: str = setting(
        '', 'frame of poses by transforms; empty: odom, else map, else their root', read_only=True
    )
    odom_wait_s: float = setting(
        0.03,
        'longest wait for the pose at the stamp of an image [s]',
        between=(0, 0.2),
    )
    mount_xyz: tuple[float, ...] = setting(
        (0.0, 0.0, 0.0),
        "position of the camera link (x forward, y left, z up) in the odometry's body, where no "
        'transform says it [m]',
        read_only=True,
    )
    mount_rpy: tuple[float, ...] = setting(
        (0.0, 0.0, 0.0),
        'roll, pitch, yaw of the camera link there, as in URDF [rad]',
        read_only=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ('mount_xyz', 'mount_rpy'):
            value = getattr(self, name)
            if len(value) != 3 or not all(map(math.isfinite, value)):
                msg = f'{name} is {list(value)}: expected three finite numbers'
                raise ConfigError(msg)


class BoundedWait:
    """Waits that end: what did not come a few times in a row is waited for now and then only."""

    def __init__(self, change: threading.Condition) -> None:
        """Take what tells of changes."""
        self._change = change
        self._in_vain = 0
        self._again_s = 0.0  # when one waits again all the same, of the monotonic clock

    def until(self, is_ready: Callable[[], bool], longest_s: float) -> bool:
        """Wait until something is ready; called with the condition held."""
        has_given_up = self._in_vain >= _GIVE_UP_AFTER and time.monotonic() < self._again_s
        longest_s = 0.0 if has_given_up else longest_s
        ready = self._change.wait_for(is_ready, longest_s)
        self._in_vain = 0 if ready else self._in_vain + 1
        if not has_given_up:
            self._again_s = time.monotonic() + _TRY_AGAIN_S
        return ready


class OwnTransforms:
    """Transforms from `/tf` and `/tf_static`, in the tree that also reads them from bags.

    For use from several threads.
    """

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """Take the clock, for what has no stamp."""
        self._tree = TransformTree()
        self._change = threading.Condition()
        self._wait = BoundedWait(self._change)
        self._now_ns = now_ns

    def listen(self, node: ManagedNode, kind: type[Any]) -> None:
        """Listen to messages of the type of transforms while a node is active."""
        node.subscribe(kind, '/tf_static', self.take_static, topics.LATCHED_OF_MANY)
        node.subscribe(kind, '/tf', self.take, topics.TRANSFORMS)

    def take_static(self, msg: Any) -> None:
        """Take a message of transforms that never change."""
        with self._change:
            for transform in msg.transforms:
                with suppress(ValueError):  # an orientation of zeros
                    pose = transform_from_msg(transform)
                    self._tree.add_static(transform.child_frame_id, pose)
            self._change.notify_all()

    def take(self, msg: Any) -> None:
        """Take a message of transforms at their stamps."""
        with self._change:
            for transform in msg.transforms:
                stamp_ns = stamp_ns_from_msg(transform.header.stamp) or self._now_ns()
                with suppress(ValueError):
                    pose = transform_from_msg(transform)
                    self._tree.add(transform.child_frame_id, stamp_ns, pose)
            self._change.notify_all()

    def has(self, frame: str) -> bool:
        """Tell whether transforms hold a frame."""
        with self._change:
            return self._tree.has(frame)

    def forget_moves(self) -> None:
        """Forget where everything was that moves, since time has jumped back."""
        with self._change:
            self._tree.forget_moves()

    def reaches(self, fixed: str, frame: str, stamp_ns: int) -> bool:
        """Tell whether all that moves between two frames is known until a stamp."""
        with self._change:
            return self._tree.reaches_between(fixed, frame, stamp_ns)

    def pose_in(self, fixed: str, frame: str, stamp_ns: int) -> tuple[Pose, int] | NoPose:
        """Pose of a frame in another one at a stamp, and that stamp; 0: the newest."""
        with self._change:
            stamp_ns = stamp_ns or self._tree.newest_ns(fixed, frame)
            pose = self._tree.pose_in(fixed, frame, stamp_ns)
            if isinstance(pose, NoPose):
                return pose
            if not self._tree.reaches_between(fixed, frame, stamp_ns):
                return NoPose('the newest transforms are from before')
            return pose, stamp_ns

    def camera_in(
        self, fixed: str | None, frame: str, stamp_ns: int, wait_s: float
    ) -> Pose | NoPose:
        """Pose of the camera link in another frame at a stamp, which may be waited for.

        Args:
            fixed: That frame, as of `TransformTree.camera_in`; None: odom, else map, else the
                root of the transforms.
            frame: Frame of the camera's images.
            stamp_ns: Stamp of an image.
            wait_s: Longest wait [s].
        """
        tree = self._tree

        def is_ready() -> bool:
            if fixed is None:
                return tree.reaches(frame, stamp_ns)
            return tree.reaches_between(fixed, frame, stamp_ns)

        with self._change:
            if tree.has(frame):
                self._wait.until(is_ready, wait_s)
            if fixed is None:
                return tree.camera_at(frame, stamp_ns)
            return tree.camera_in(fixed, frame, stamp_ns)


def listen_to_transforms(node: ManagedNode) -> OwnTransforms | None:
    """Hear transforms while the node is active; None: tf2_msgs is not there."""
    kind = installed_class(_TRANSFORMS)
    if kind is None:
        return None
    transforms = OwnTransforms(node.now_ns)
    transforms.listen(node, kind)
    return transforms


def check_pose_source(config: PoseConfig) -> None:
    """Refuse poses by transforms where nothing here reads them.

    Raises:
        ConfigError: They are asked for.
    """
    if config.pose_source == 'tf' and not installed_class(_TRANSFORMS):
        msg = "pose_source is 'tf', and tf2_msgs is not installed: install it, or use odom"
        raise ConfigError(msg)


class LivePoses:
    """Poses of one camera while its node is active."""

    def __init__(
        self,
        node: ManagedNode,
        config: Callable[[], PoseConfig],
        tell: Callable[[Exception], None],
    ) -> None:
        """Listen to odometry and transforms, as the settings say.

        Args:
            node: The node, which becomes active.
            config: Gives the settings.
            tell: Is told of what is wrong.
        """
        self._node, self._config, self._tell = node, config, tell
        self._source = config().pose_source
        self.odometry = Meter()
        self.used = 'none'  # for the newest image: odom, tf or none
        self.frame = ''  # fixed frame of the newest pose
        self.missing = 0  # images without a pose though one was to be expected
        self._body = ''  # of the odometry
        self._poses = PoseBuffer()
        self._change = threading.Condition()
        self._wait = BoundedWait(self._change)
        self.transforms = listen_to_transforms(node)
        if self._source != 'tf':
            node.subscribe(Odometry, 'odom', self.take_odometry, topics.SENSOR)

    def take_odometry(self, msg: Odometry) -> None:
        """Take a pose of the body."""
        self.odometry.tick()
        pose, body = body_pose_from_msg(msg)
        # Bases without a clock leave the stamp at zero: only the time of receipt is left.
        stamp_ns = stamp_ns_from_msg(msg.header.stamp) or self._node.now_ns()
        try:
            with self._change:
                self._body = body
                self._poses.add(stamp_ns, pose)
                self._change.notify_all()
        except ValueError as error:
            self._tell(error)

    def at(self, stamp_ns: int, frame_id: str) -> Pose | None:
        """Pose of the camera link at the stamp of an image of a frame; None: not known.

        It waits a bounded time for what is to come. Not for use in a callback.
        """
        by_odometry = self._source == 'odom' or (
            self._source == 'auto' and self._expects_odometry()
        )
        self.used = 'none'
        if by_odometry:
            if not self._expects_odometry():
                return None
            pose = self._by_odometry(stamp_ns, frame_id)
        else:
            pose = self._by_transforms(stamp_ns, frame_id)
        if pose is None:
            return None
        self.used = 'odom' if by_odometry else 'tf'
        self.frame = pose.frame_id
        return pose

    def values(self) -> dict[str, Any]:
        """For the diagnostics."""
        return {
            'odometry_rate_hz': self.odometry.rate_hz(),
            'pose': self.used,
            'poses_missing': self.missing,
            'pose_frame': self.frame,
            'transforms': 'heard' if self.transforms else 'tf2_msgs is not installed',
        }

    def _by_transforms(self, stamp_ns: int, frame_id: str) -> Pose | None:
        config = self._config()
        if self.transforms is None:
            return None
        pose = self.transforms.camera_in(
            config.fixed_frame or None, frame_id, stamp_ns, config.odom_wait_s
        )
        if not isinstance(pose, NoPose):
            return pose
        if self._source == 'tf':
            self.missing += 1
            self._tell(ImageError(f'no pose of the camera: {pose.reason}'))
        return None

    def _by_odometry(self, stamp_ns: int, frame_id: str) -> Pose | None:
        """Pose by odometry: transforms say how the camera is mounted, else the parameters."""
        config = self._config()
        with self._change:
            self._wait.until(lambda: self._poses.reaches(stamp_ns), config.odom_wait_s)
            pose, body = self._poses.at(stamp_ns), self._body
        if pose is None:
            self.missing += 1
            return None

        def mount(body: str) -> Pose | NoPose | None:
            if self.transforms and self.transforms.has(frame_id):
                return self.transforms.camera_in(body, frame_id, stamp_ns, config.odom_wait_s)
            return None

        x, y, z = config.mount_xyz
        roll, pitch, yaw = config.mount_rpy
        place = (x, y, z), (roll, pitch, yaw)
        camera = camera_of_body(pose, body, frame_id, mount, place)
        if isinstance(camera, NoPose):
            self.missing += 1
            text = f'no transform says where the camera is on {body!r}: {camera.reason}'
            self._tell(ImageError(text))
            return None
        return camera

    def _expects_odometry(self) -> bool:
        if self.odometry.count:
            return self.odometry.age_s() <= _GONE_S
        # The first image may overtake the first odometry of a publisher that is there.
        return bool(self._node.count_publishers(self._node.resolve_topic_name('odom')))
