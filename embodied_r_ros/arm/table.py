# SPDX-License-Identifier: Apache-2.0
"""Where things on a table are, from the directions in which a camera sees them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
import math
from typing import TYPE_CHECKING

from embodied_r_ros.arm.candidates import SeenThing
from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.types.answers import FocusText
from embodied_r_ros.core.types.deltas import ItemStatus
from embodied_r_ros.core.types.geometry import (
    BODY_FROM_OPTICAL,
    Pose,
    Position,
    position_text,
    vector_of_direction,
)
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.arm.robot import RobotMetadata
    from embodied_r_ros.core.types.deltas import Item, SemanticDelta
    from numpy.typing import NDArray

# Rows keep directions and distances so; live ones are rounded likewise, to give the same text.
_DECIMALS = 4
_ON_TABLE = 'On the table: '
_AT_TOOL = 'At the end effector: '
_TOUCH_M = 0.02  # a thing whose ray passes the end effector within this is at it
_BELOW_M = 0.02  # what is further below the table is not meant: its distance is that of a floor


@dataclass(frozen=True)
class PlacingConfig(Settings):
    """How items on a table are placed, and the camera's pose where no transforms give it."""

    item_height_m: float = setting(
        0.04,
        'height of usual things on the table: their middles are half of it above it [m]',
        between=(0, 1),
    )
    margin_m: float = setting(
        0.05, 'how far beyond the workspace things are placed [m]', between=(0, 10)
    )
    reach_m: float = setting(
        0.5, 'how far from the reference point, where no workspace is given [m]', between=(0, 10)
    )
    look_every_s: float = setting(
        0.5,
        'longest time between two looks at the table, however little changes [s]; 0: as for other '
        'cameras. Live it is keyframe.max_interval_s of the extractor',
        between=(0, 3600),
    )
    camera_position: tuple[float, ...] = setting(
        (), 'of the optical frame in the task frame, x, y, z [m]; empty: from transforms'
    )
    camera_orientation: tuple[float, ...] = setting(
        (), 'of the optical frame in the task frame, quaternion x, y, z, w; empty: likewise'
    )

    def __post_init__(self) -> None:
        """Refuse values that are not allowed."""
        super().__post_init__()
        numbers = (*self.camera_position, *self.camera_orientation)
        lengths = (len(self.camera_position), len(self.camera_orientation))
        is_finite = all(type(value) in (int, float) and -1e6 <= value <= 1e6 for value in numbers)
        is_turn = not self.camera_orientation or any(self.camera_orientation)
        if lengths not in ((0, 0), (3, 4)) or not is_finite or not is_turn:
            msg = (
                f'camera_position is {self.camera_position!r}, camera_orientation '
                f'{self.camera_orientation!r}: expected x, y, z and x, y, z, w, or neither'
            )
            raise ConfigError(msg)

    def camera(self, frame_id: str) -> Pose:
        """Pose of the camera's optical frame in the task frame, where it is given."""
        x, y, z = self.camera_position
        a, b, c, d = self.camera_orientation
        return Pose((x, y, z), (a, b, c, d), frame_id)


@dataclass(frozen=True)
class TableView:
    """A table as a camera sees it."""

    camera: Pose  # of the optical frame (x right, y down, z forward) in the task frame
    table_m: float  # z of the table in the task frame
    middle_m: float  # z of the middles of usual things on it
    low: Position  # nothing is placed below or beyond [m]; of z, only what is above
    high: Position
    tool: Position | None = None  # end effector when the image was taken; None: not to be used
    name: str = ''  # of the camera, where deltas are of several

    def describe(self, deltas: Sequence[SemanticDelta]) -> FocusText | None:
        """Where the newest delta's items are in the task frame, as a look at its keyframe.

        Args:
            deltas: The scene, oldest first.

        Returns:
            None where nothing can be placed.
        """
        several = len({delta.camera for delta in deltas}) > 1
        own = [delta for delta in deltas if delta.camera == self.name or not several]
        on_table, at_tool = [], []
        for item in own[-1].items if own else ():
            where = place(item, self) if item.status is not ItemStatus.LEFT else None
            if where and where.is_at_tool:
                at_tool.append(item.label)
            elif where:
                on_table.append(f'{item.label} at {position_text(where.position)}')
        sentences = [f'{_ON_TABLE}{"; ".join(on_table)}.'] if on_table else []
        sentences += [f'{_AT_TOOL}{"; ".join(at_tool)}.'] if at_tool else []
        if not sentences:
            return None
        return FocusText(own[-1].to_id, own[-1].stamp_ns, ' '.join(sentences), own[-1].camera)


@dataclass(frozen=True)
class Place:
    """Where an item is."""

    position: Position  # of its middle, in the task frame [m]
    is_at_tool: bool = False  # the end effector holds it, touches it, or is it


def table_view(
    camera: Pose | None,
    metadata: RobotMetadata,
    config: PlacingConfig,
    tool: Position | None = None,
) -> TableView | None:
    """The table of a robot as a camera sees it; None: where the camera is, is not known.

    Args:
        camera: Pose of its optical frame in the task frame; None: as configured.
        metadata: The task frame, the table in it, and the workspace.
        config: How things are placed.
        tool: Where the end effector was when the image was taken [m]; None: not to be used.
    """
    if camera is None:
        if not config.camera_position:
            return None
        camera = config.camera(metadata.frame_id)
    x, y, table_m = metadata.reference
    reach_m, margin_m = config.reach_m, config.margin_m
    low = metadata.workspace_low or (x - reach_m, y - reach_m, table_m)
    high = metadata.workspace_high or (x + reach_m, y + reach_m, table_m + reach_m)
    return TableView(
        camera,
        table_m,
        table_m + config.item_height_m / 2,
        (low[0] - margin_m, low[1] - margin_m, table_m),
        (high[0] + margin_m, high[1] + margin_m, high[2] + margin_m),
        tool,
    )


def place(item: Item, view: TableView) -> Place | None:
    """Where an item is; None: its direction is unknown, or does not lead to the table."""
    bearing, elevation, distance = (
        round(value, _DECIMALS)
        for value in (item.bearing_rad, item.elevation_rad, item.distance_m)
    )
    if not math.isfinite(bearing) or not math.isfinite(elevation):
        return None
    eye = np.asarray(view.camera.position)
    ray_in_camera = BODY_FROM_OPTICAL.T @ vector_of_direction(bearing, elevation)
    ray = view.camera.rotation() @ ray_in_camera
    if view.tool and (at_tool := _beside(eye, ray, view.tool)) is not None:
        return Place(_position(at_tool), is_at_tool=True)
    way = distance if _is_on_table(eye, ray, distance, view) else _way_down(eye, ray, view)
    point = eye + way * ray
    lengths = zip(view.low[:2], point.tolist(), view.high[:2], strict=False)
    if way <= 0 or point[2] > view.high[2] or not all(a <= b <= c for a, b, c in lengths):
        return None
    return Place(_position(point))


def _beside(
    eye: NDArray[np.float64], ray: NDArray[np.float64], tool: Position
) -> NDArray[np.float64] | None:
    """The point of a ray that is nearest to the end effector [m]; None: it is not near."""
    way = float(ray @ np.subtract(tool, eye))
    nearest = eye + way * ray
    is_near = way > 0 and np.linalg.norm(nearest - tool) <= _TOUCH_M
    return np.asarray(nearest) if is_near else None


def _is_on_table(
    eye: NDArray[np.float64], ray: NDArray[np.float64], distance_m: float, view: TableView
) -> bool:
    """Whether a known distance may be believed: those of a floor end below the table."""
    if not math.isfinite(distance_m):
        return False
    return bool(eye[2] + distance_m * ray[2] >= view.table_m - _BELOW_M)


def _way_down(eye: NDArray[np.float64], ray: NDArray[np.float64], view: TableView) -> float:
    """Length of a ray to the plane of middles [m]; 0: it does not lead there."""
    return float((view.middle_m - eye[2]) / ray[2]) if ray[2] else 0.0


def _position(point: NDArray[np.float64]) -> Position:
    x, y, z = (float(value) for value in point)
    return x, y, z


_REMEMBERED = 20  # deltas


def seen_things(deltas: Sequence[SemanticDelta], view: TableView) -> tuple[SeenThing, ...]:
    """Place the things in the deltas.

    Args:
        deltas: The deltas, oldest first.
        view: How the camera sees the table, with the end effector as of the newest delta.
    """
    several = len({delta.camera for delta in deltas}) > 1
    own = (delta for delta in reversed(deltas) if delta.camera == view.name or not several)
    things: list[SeenThing] = []
    labels: set[str] = set()  # labels of newer deltas
    for delta in islice(own, _REMEMBERED):
        items = [item for item in delta.items if item.status is not ItemStatus.LEFT]
        for item in items:
            at = place(item, view) if item.label not in labels else None
            if at and not at.is_at_tool:
                things.append(SeenThing(item.label, at.position))
        labels |= {item.label for item in items}
    return tuple(things)
