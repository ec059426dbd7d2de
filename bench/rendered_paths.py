# SPDX-License-Identifier: Apache-2.0
"""Camera paths through rendered rooms, with depth, so that what two images share is known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
import math
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.core.keyframes.overlap import covisibility
from embodied_r_ros.core.types.geometry import (
    BODY_FROM_OPTICAL,
    Intrinsics,
    Pose,
    quaternion_from_matrix,
    rotation_from_ypr,
)
from embodied_r_ros.sim import require_simulator
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

FOV_RAD = math.radians(66.0)  # horizontal, as of common RGB-D cameras
_ROOM_M = (8.0, 6.0, 3.0)  # length along x, width along y, height
_TEXTURE_PX = 512
_TRUTH_WIDTH_PX = 160  # of the depth images that are compared


@dataclass(frozen=True)
class RenderedShot:
    """One rendered image with what is needed to know what it shares with another."""

    image: NDArray[np.uint8]  # (H, W, 3), BGR
    depth: NDArray[np.float32]  # (h, w) [m], at the size of `camera`
    camera: Intrinsics
    pose: Pose


def true_overlap(first: RenderedShot, second: RenderedShot) -> float:
    """Smaller of the two directed shares of view, 0..1."""
    return min(covisibility(first.depth, first.pose, second.depth, second.pose, first.camera))


@dataclass(frozen=True)
class _State:
    """Where the camera is [m], with yaw to the left and tilt upwards [rad]."""

    x: float
    y: float
    z: float
    yaw: float = 0.0
    tilt: float = 0.0

    def pose(self) -> Pose:
        rotation = rotation_from_ypr(self.yaw, -self.tilt, 0.0)
        return Pose((self.x, self.y, self.z), quaternion_from_matrix(rotation), 'room')


def _line(start: _State, end: _State) -> Callable[[float], _State]:
    a, b = (np.array(list(vars(state).values())) for state in (start, end))
    return lambda progress: _State(*(a + progress * (b - a)))


def _orbit(progress: float) -> _State:
    angle = math.radians(-60 + 120 * progress)
    x, y = 0.6 - 2.2 * math.cos(angle), -2.2 * math.sin(angle)
    return _State(x, y, 1.2, math.atan2(-y, 0.6 - x), -0.1)


def _mixed_state(progress: float) -> _State:
    x = -2.8 + 3.6 * math.sin(math.pi * progress)
    yaw = 0.9 * math.sin(2 * math.pi * progress)
    return _State(x, 1.2 * progress - 0.6, 1.0 + 0.5 * progress, yaw, -0.1)


# Each path is a function of progress in 0..1.
PATHS: dict[str, Callable[[float], _State]] = {
    'forward': _line(_State(-3.4, 0.3, 1.1), _State(1.4, 0.3, 1.1)),
    'retreat': _line(_State(0.9, -0.2, 1.1), _State(-3.1, -0.2, 1.1)),
    'strafe': _line(_State(-1.8, -2.0, 1.1), _State(-1.8, 2.0, 1.1)),
    'turn': _line(_State(-0.5, 0.0, 1.2, -1.4), _State(-0.5, 0.0, 1.2, 1.4)),
    'ascend': _line(_State(-2.0, 0.0, 0.3, 0, -0.5), _State(-2.0, 0.0, 2.7, 0, -0.5)),
    'orbit': _orbit,
    'mixed': _mixed_state,
}


def render_path(
    name: str, images: int, room_seed: int, size: tuple[int, int] = (640, 480)
) -> Iterator[RenderedShot]:
    """Render a path through a room.

    Args:
        name: One of `PATHS`.
        images: How many images, evenly spread over the path.
        room_seed: Decides walls, furniture and textures.
        size: Width and height of the images [px].

    Raises:
        ConfigError: MuJoCo is missing or cannot render.
    """
    require_simulator()
    import mujoco

    camera = Intrinsics.from_fov(*size, FOV_RAD)
    small = camera.scaled(_TRUTH_WIDTH_PX, _TRUTH_WIDTH_PX * size[1] // size[0])
    model = mujoco.MjModel.from_xml_string(*_room(room_seed, camera))
    data = mujoco.MjData(model)
    renderer = mujoco.Renderer(model, size[1], size[0])
    renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = 0
    try:
        for progress in np.linspace(0.0, 1.0, images):
            pose = PATHS[name](float(progress)).pose()
            image, depth = _render(model, data, renderer, pose)
            coarse = cv2.resize(
                depth, (small.width, small.height), interpolation=cv2.INTER_NEAREST
            )
            yield RenderedShot(image, np.asarray(coarse, np.float32), small, pose)
    finally:
        renderer.close()


def _render(
    model: Any, data: Any, renderer: Any, pose: Pose
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    import mujoco

    eye = model.camera('eye')
    eye.pos[:] = pose.position
    # MuJoCo's cameras look along -z with y up; optical axes look along +z with y down.
    axes = pose.rotation() @ BODY_FROM_OPTICAL @ np.diag([1.0, -1.0, -1.0])
    mujoco.mju_mat2Quat(eye.quat, axes.ravel())
    mujoco.mj_forward(model, data)
    renderer.update_scene(data, 'eye')
    image = np.ascontiguousarray(renderer.render()[..., ::-1])
    renderer.enable_depth_rendering()
    renderer.update_scene(data, 'eye')
    depth = renderer.render().copy()
    renderer.disable_depth_rendering()
    return image, depth


@lru_cache(maxsize=1)
def _room(seed: int, camera: Intrinsics) -> tuple[str, dict[str, bytes]]:
    """MJCF of a room with furniture, and its textures."""
    rng = np.random.default_rng(seed)
    surfaces = [*_walls(), *_furniture(rng)]
    pictures = {f's{index}.png': _texture(rng) for index in range(len(surfaces))}
    files = {name: cv2.imencode('.png', image)[1].tobytes() for name, image in pictures.items()}
    assets = ''.join(
        f'<texture name="s{index}" type="{"2d" if "plane" in geom else "cube"}" '
        f'file="s{index}.png"/>'
        f'<material name="s{index}" texture="s{index}" texrepeat="{repeat}"/>'
        for index, (geom, repeat) in enumerate(surfaces)
    )
    geoms = ''.join(
        f'<geom {geom} material="s{index}"/>' for index, (geom, _) in enumerate(surfaces)
    )
    fov_y_deg = math.degrees(2 * math.atan(camera.height / 2 / camera.fy))
    xml = f"""
<mujoco>
  <visual>
    <global offwidth="{camera.width}" offheight="{camera.height}"/>
    <headlight ambient=".55 .55 .55" diffuse=".35 .35 .35" specular="0 0 0"/>
    <quality shadowsize="0" offsamples="4"/>
    <map znear="0.01"/>
  </visual>
  <asset>{assets}</asset>
  <worldbody>
    <light pos="1 1 2.8" dir="-.2 -.2 -1" diffuse=".3 .3 .3" specular="0 0 0"/>
    <camera name="eye" fovy="{fov_y_deg}"/>
    {geoms}
  </worldbody>
</mujoco>"""
    return xml, files


def _walls() -> Iterator[tuple[str, str]]:
    """Floor, ceiling and walls. Planes show one side only, so that each faces into the room."""
    x, y, z = (side / 2 for side in _ROOM_M)
    for place, normal, half, repeat in (
        ((0, 0, 0), (0, 0, 1), (x, y), '3 3'),
        ((0, 0, 2 * z), (0, 0, -1), (x, y), '2 2'),
        ((x, 0, z), (-1, 0, 0), (z, y), '1 2'),
        ((-x, 0, z), (1, 0, 0), (z, y), '1 2'),
        ((0, y, z), (0, -1, 0), (x, z), '3 1'),
        ((0, -y, z), (0, 1, 0), (x, z), '3 1'),
    ):
        yield (
            f'type="plane" pos="{_text(place)}" zaxis="{_text(normal)}" size="{_text(half)} 1"',
            repeat,
        )


def _furniture(rng: np.random.Generator) -> Iterator[tuple[str, str]]:
    """Boxes, cylinders and ellipsoids; where the paths run, only low ones."""
    for _ in range(int(rng.integers(7, 12))):
        half = rng.uniform((0.15, 0.15, 0.2), (0.5, 0.5, 0.9))
        x, y = rng.uniform((-0.3, -2.6), (3.6, 2.6))
        if abs(y) < 0.9 and x < 2.0:
            half[2] *= 0.35
        kind = rng.choice(['box', 'cylinder', 'ellipsoid'])
        turn = f'euler="0 0 {rng.uniform(0, 90):.1f}"'
        yield f'type="{kind}" size="{_text(half)}" pos="{_text((x, y, half[2]))}" {turn}', '1 1'


def _text(values: Sequence[float] | NDArray[np.float64]) -> str:
    return ' '.join(f'{value:.5g}' for value in values)


def _texture(rng: np.random.Generator) -> NDArray[np.uint8]:
    """A painted surface: uneven colour, and patches, tiles or little else. (512, 512, 3)."""
    n = _TEXTURE_PX
    picture = np.full((n, n, 3), rng.uniform(60, 200, 3))
    contrast = rng.uniform(0.25, 0.8)
    for octave, strength in ((4, 20), (16, 12), (64, 12), (256, 10)):
        noise = rng.normal(0, contrast * strength, (octave, octave))
        picture += cv2.resize(noise, (n, n), interpolation=cv2.INTER_CUBIC)[..., None]
    kind = rng.choice(['patches', 'tiles', 'plain'], p=[0.5, 0.3, 0.2])
    if kind == 'tiles':
        width, height = rng.integers(24, 128, 2)
        shades = rng.normal(0, 18 * contrast, (n // height + 1, n // width + 1))
        picture += np.kron(shades, np.ones((height, width)))[:n, :n, None]
        picture[::height] -= 60 * contrast
        picture[:, ::width] -= 60 * contrast
    for _ in range(int(rng.integers(15, 70) if kind == 'patches' else rng.integers(0, 6))):
        x, y = rng.integers(0, n, 2)
        width, height = rng.integers(8, 90, 2)
        picture[y : y + height, x : x + width] += rng.uniform(-90, 90, 3) * contrast
    return np.clip(picture, 0, 255).astype(np.uint8)
