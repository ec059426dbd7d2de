# SPDX-License-Identifier: Apache-2.0
"""A room in MuJoCo: things placed, rays cast, views rendered."""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.core.keyframes.overlap import pixel_rays
from embodied_r_ros.core.types.geometry import BODY_FROM_OPTICAL
from embodied_r_ros.sim.indoor.model import FAR_M, room_model, thing_name
import mujoco
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.types.geometry import Intrinsics, Pose
    from embodied_r_ros.core.types.layout import Vector
    from embodied_r_ros.sim.indoor.room import Room
    from numpy.typing import NDArray

_HIDDEN_GROUP = 5  # which the renderer leaves out
_AWAY: Vector = (0.0, 0.0, -10.0)  # absent things wait under the floor


@dataclass(frozen=True)
class Rendering:
    """What a camera sees from one pose."""

    image: NDArray[np.uint8]  # (H, W, 3), BGR
    depth: NDArray[np.float32]  # (H, W), along the optical axis [m]
    things: NDArray[np.int32]  # (H, W), index of the thing that is seen; -1: none


class World:
    """A room with things that can be placed. For one thread at a time."""

    def __init__(self, room: Room, texture_rng: np.random.Generator | None = None) -> None:
        """Build the model.

        Args:
            room: What stands where.
            texture_rng: Where the textures come from; None: none, for rays alone.
        """
        self.model = room_model(room, texture_rng)
        self.data = mujoco.MjData(self.model)
        names = [thing_name(index) for index in range(len(room.things))]
        self._mocaps = [int(self.model.body(name).mocapid[0]) for name in names]
        owners = np.full(self.model.nbody, -1, np.int32)
        owners[[self.model.body(name).id for name in names]] = np.arange(len(names))
        self._things = owners[self.model.geom_bodyid]  # of each geom
        self.place([thing.position for thing in room.things])

    def place(self, positions: Sequence[Vector | None]) -> None:
        """Put the centre of each thing somewhere [m]; None: it is absent."""
        for mocap, position in zip(self._mocaps, positions, strict=True):
            self.data.mocap_pos[mocap] = _AWAY if position is None else position
        mujoco.mj_kinematics(self.model, self.data)

    def look(self, pose: Pose) -> None:
        """Put the camera link somewhere, for rendering."""
        # MuJoCo's cameras look along -z with y up; optical axes look along +z with y down.
        rotation = pose.rotation() @ BODY_FROM_OPTICAL @ np.diag([1.0, -1.0, -1.0])
        mocap = int(self.model.body('eye').mocapid[0])
        self.data.mocap_pos[mocap] = pose.position
        mujoco.mju_mat2Quat(self.data.mocap_quat[mocap], rotation.ravel())
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_camlight(self.model, self.data)

    def cast(
        self, origin: Sequence[float], directions: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """Cast rays and say how far each goes, and which thing it meets.

        Args:
            origin: Where the rays start [m].
            directions: Unit vectors in the fixed frame. Shape (N, 3).

        Returns:
            Distances [m], -1 where nothing is met (N,); indices of things, -1 for all else (N,).
        """
        count = len(directions)
        geoms, distances = np.full(count, -1, np.int32), np.full(count, -1.0)
        start, rays = np.array(origin, np.float64), np.ascontiguousarray(directions).ravel()
        mujoco.mj_multiRay(
            self.model, self.data, start, rays, None, 1, -1, geoms, distances, count, FAR_M
        )
        return distances, self.things_of(geoms)

    def depth(self, pose: Pose, camera: Intrinsics) -> NDArray[np.float64]:
        """Depth along the optical axis by rays, without a renderer [m]. Shape (H, W)."""
        rays = pixel_rays(camera).reshape(-1, 3)
        lengths = np.linalg.norm(rays, axis=1)
        rotation = pose.rotation() @ BODY_FROM_OPTICAL
        distances, _ = self.cast(pose.position, rays / lengths[:, None] @ rotation.T)
        return np.asarray((distances / lengths).reshape(camera.height, camera.width))

    def things_of(self, geoms: NDArray[np.int32]) -> NDArray[np.int32]:
        """Index of the thing that each geom id belongs to, -1 for none and for id -1."""
        return np.asarray(np.where(geoms >= 0, self._things[geoms], -1))


class WorldRenderer:
    """Renders a world without shadows and multisampling. Use it as a context manager."""

    def __init__(self, world: World, camera: Intrinsics) -> None:
        """Open the renderer.

        Args:
            world: What to render.
            camera: Square pixels, centred axis, no distortion: what OpenGL can do.

        Raises:
            ValueError: The camera is another one.
        """
        centred = (camera.width - 1) / 2, (camera.height - 1) / 2
        if (camera.cx, camera.cy) != centred or camera.fx != camera.fy or camera.distortion:
            msg = f'{camera} cannot be rendered: expected square pixels and a centred axis'
            raise ValueError(msg)
        model = world.model
        model.vis.global_.offwidth, model.vis.global_.offheight = camera.width, camera.height
        model.cam_fovy[0] = math.degrees(2 * math.atan(camera.height / 2 / camera.fy))
        self.world = world
        self._renderer = mujoco.Renderer(model, camera.height, camera.width)
        self._renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = 0
        # Outward normals of the view: right, left, above, below, behind.
        across, down = camera.fx / (camera.width / 2), camera.fy / (camera.height / 2)
        sides = [(across, 0, 1), (-across, 0, 1), (0, down, 1), (0, -down, 1), (0, 0, 1)]
        self._sides = np.array(sides) / np.linalg.norm(sides, axis=1, keepdims=True)

    def image(self, pose: Pose) -> NDArray[np.uint8]:
        """Colour image from a pose of the camera link. Shape (H, W, 3), BGR."""
        self.world.look(pose)
        return np.asarray(cv2.cvtColor(self._draw(), cv2.COLOR_RGB2BGR), np.uint8)

    def render(self, pose: Pose) -> Rendering:
        """Colour, depth and things from a pose of the camera link."""
        image = self.image(pose)
        self._renderer.enable_depth_rendering()
        depth = self._draw()
        return Rendering(image, depth, self.things(pose))

    def things(self, pose: Pose) -> NDArray[np.int32]:
        """Index of the thing that each pixel shows from a pose; -1: none. Shape (H, W)."""
        self.world.look(pose)
        self._renderer.enable_segmentation_rendering()
        segments = self._draw()
        self._renderer.disable_segmentation_rendering()
        is_geom = segments[..., 1] == int(mujoco.mjtObj.mjOBJ_GEOM)  # the enum itself is slow
        geoms = np.where(is_geom, segments[..., 0], -1)
        return self.world.things_of(geoms.astype(np.int32))

    def close(self) -> None:
        """Free what the renderer holds."""
        self._renderer.close()

    def __enter__(self) -> WorldRenderer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _draw(self) -> Any:
        self._leave_out_unseen()
        self._renderer.update_scene(self.world.data, 'eye')
        return self._renderer.render()

    def _leave_out_unseen(self) -> None:
        """Draw nothing that lies beside the view; planes have no bounds and are drawn."""
        model, data = self.world.model, self.world.data
        offsets = (data.geom_xpos - data.cam_xpos[0]) @ data.cam_xmat[0].reshape(3, 3)
        radius = np.where(model.geom_rbound > 0, model.geom_rbound, np.inf)
        is_unseen = (offsets @ self._sides.T > radius[:, None]).any(axis=1)
        model.geom_group[:] = np.where(is_unseen, _HIDDEN_GROUP, 0)
