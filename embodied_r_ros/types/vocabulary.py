# SPDX-License-Identifier: Apache-2.0
"""What an item may be called without a model that knows classes: a colour and a coarse shape.

Simulated worlds are furnished with it and the classical perceiver finds it, so that the truth says
no more than what can be seen. Colours are hues that white light of any strength leaves apart; the
hues between two ranges (wood and skin above all, between red and yellow) have no name on purpose.
Shapes come from the silhouette alone.
"""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

HUES = 180  # OpenCV's 8-bit HSV counts hue in steps of two degrees
MIN_SATURATION = 110  # 0..255; what is paler has no colour name
MIN_VALUE = 45  # 0..255; what is darker has no colour name

# Bounds of an upright body's height divided by its width. A cube has 0.7 (seen at its edge) to 1.
TALL_FROM = 1.35
FLAT_UP_TO = 0.5
# Silhouettes of spheres reach more, those of cubes less, from 12 px across upwards.
ROUND_FROM = 0.945
_ROUND_ASPECT = 1.25  # a sphere's silhouette is no more drawn out than this, either way

SHAPES = ('round', 'tall', 'flat', 'blocky')


@dataclass(frozen=True)
class Colour:
    """A named range of hues in OpenCV's 8-bit HSV."""

    name: str
    hue: int  # typical, 0..179
    first: int  # lowest hue, inclusive
    last: int  # highest hue, inclusive; below `first` where the range passes 179

    def contains(self, hue: int) -> bool:
        """Tell whether a hue 0..179 is of this colour."""
        return (hue - self.first) % HUES <= (self.last - self.first) % HUES


COLOURS = (
    Colour('red', 0, 173, 7),
    Colour('yellow', 28, 22, 36),
    Colour('green', 58, 44, 74),
    Colour('cyan', 90, 80, 99),
    Colour('blue', 114, 104, 122),
    Colour('purple', 136, 126, 146),
    Colour('pink', 160, 151, 168),
)


def colour_named(name: str) -> Colour:
    """Find a colour by its name.

    Raises:
        InputError: No colour has that name; the known ones are listed.
    """
    for colour in COLOURS:
        if colour.name == name:
            return colour
    msg = f'no colour is called {name!r}: expected one of {", ".join(c.name for c in COLOURS)}'
    raise InputError(msg)


def hue_table() -> NDArray[np.int8]:
    """Index in COLOURS of each hue, -1 for hues without a name. Shape (180,)."""
    table = np.full(HUES, -1, np.int8)
    for index, colour in enumerate(COLOURS):
        table[[hue for hue in range(HUES) if colour.contains(hue)]] = index
    return table


def item_label(colour: str, shape: str = '', name: str = '') -> str:
    """The label of an item: 'red tall object', 'red object' without a shape, 'red cup' by name."""
    if name:
        return f'{colour} {name}'.strip()
    return f'{colour} {shape} object' if shape else f'{colour} object'


def roundness(mask: NDArray[np.bool_]) -> float:
    """Agreement (intersection over union) of a silhouette with the ellipse of its moments.

    1 for an ellipse of any proportions, about 0.9 for a rectangle; 0 for an empty mask.

    Args:
        mask: True inside the silhouette. Shape (H, W).
    """
    points = np.argwhere(mask).astype(np.float64)
    if len(points) == 0:
        return 0.0
    offsets = points - points.mean(axis=0)
    # A pixel is a unit square, not a point: it has a variance of 1/12 of its own.
    covariance = offsets.T @ offsets / len(points) + np.eye(2) / 12
    squared = np.einsum('ij,jk,ik->i', offsets, np.linalg.inv(covariance), offsets)
    inside = np.count_nonzero(squared <= 4.0)  # a filled ellipse ends at two standard deviations
    area = 4 * math.pi * math.sqrt(np.linalg.det(covariance))
    return float(inside / (len(points) + area - inside))


def shape_word(aspect: float, roundness: float, elevation_rad: float = 0.0) -> str:
    """The coarse shape, one of SHAPES, of a body that stands upright.

    Args:
        aspect: Height divided by width of the silhouette, both as angles from the camera.
        roundness: As given by `roundness`.
        elevation_rad: Of the line of sight above the horizon; negative where the body is seen
            from above, which shows its top.
    """
    if roundness >= ROUND_FROM and 1 / _ROUND_ASPECT <= aspect <= _ROUND_ASPECT:
        return 'round'
    # The top of a body as deep as it is wide adds the sine to its height; its sides shrink.
    top = math.sin(-elevation_rad) if elevation_rad < 0 else 0.0
    proportion = (aspect - top) / math.cos(elevation_rad)
    if proportion >= TALL_FROM:
        return 'tall'
    return 'flat' if proportion <= FLAT_UP_TO else 'blocky'
