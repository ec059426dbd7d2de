# SPDX-License-Identifier: Apache-2.0
"""What the gate lets through."""

from __future__ import annotations

from dataclasses import dataclass
import math

from embodied_r_ros.config import check_settings, setting
from embodied_r_ros.errors import ConfigError

RUNGS = ('primary', 'secondary', 'local')
_CORNERS = ('workspace_min', 'workspace_max')


@dataclass(frozen=True)
class GateConfig:
    """The rules. Where the workspace or the step is not set, every proposal is refused."""

    workspace_frame: str = setting(
        '', 'frame of the workspace; empty: not set, and every proposal is refused'
    )
    workspace_min: tuple[float, ...] = setting(
        (0.0, 0.0, 0.0), 'least x, y, z of the workspace, in its frame [m]'
    )
    workspace_max: tuple[float, ...] = setting(
        (0.0, 0.0, 0.0), 'largest x, y, z of the workspace, in its frame [m]'
    )
    max_step_m: float = setting(
        0.0,
        'longest step to a keypoint [m]; 0: not set, and every proposal is refused',
        between=(0, 1000),
    )
    step_from: str = setting(
        'pose',
        'where a step begins: pose (`current_pose`), or accepted (the keypoint accepted last; the '
        'first step begins at the pose)',
        choices=('pose', 'accepted'),
    )
    tool_frame: str = setting(
        '', 'frame of the end effector, for tf; empty: `current_pose` tells where it is'
    )
    max_pose_age_s: float = setting(
        0.5, 'age up to which `current_pose` counts [s]', between=(0.01, 60)
    )
    tf_wait_s: float = setting(
        0.1,
        'longest wait for tf2 to know the frame of a proposal, or of a pose, at its stamp [s]',
        between=(0, 1),
    )
    min_confidence: float = setting(
        0.5, 'least confidence; 0: any, an unknown one too', between=(0, 1)
    )
    max_age_s: float = setting(
        5.0, 'greatest age of the newest observation [s]', between=(0.01, 3600)
    )
    rungs: tuple[str, ...] = setting(
        ('primary',),
        'rungs whose models may propose: primary, secondary, local; the lower ones need degraded',
    )
    degraded: bool = setting(
        False,
        'take proposals of a lower rung, from observations of one, or with failed ones in between',
    )
    max_rate_hz: float = setting(
        1.0, 'keypoints are accepted at most this often [Hz]', between=(0.001, 1000)
    )
    confirm: bool = setting(False, 'an operator confirms every keypoint (`confirm_keypoint`)')
    confirm_within_s: float = setting(10.0, 'time for that confirmation [s]', between=(0.1, 3600))

    def __post_init__(self) -> None:
        check_settings(self)
        for name in _CORNERS:
            value = getattr(self, name)
            if len(value) != 3 or not all(map(math.isfinite, value)):
                msg = f'{name} is {list(value)}: expected three finite numbers'
                raise ConfigError(msg)
        low, high = self.workspace_min, self.workspace_max
        if self.workspace_frame and not all(a < b for a, b in zip(low, high, strict=True)):
            msg = (
                f'workspace_min is {list(low)}, workspace_max {list(high)}: expected each '
                'coordinate of workspace_min below that of workspace_max'
            )
            raise ConfigError(msg)
        if not self.rungs or set(self.rungs) - set(RUNGS):
            msg = f'rungs is {list(self.rungs)}: expected some of {", ".join(RUNGS)}'
            raise ConfigError(msg)
