# SPDX-License-Identifier: Apache-2.0
"""ROS parameters from config dataclasses: declared, checked and kept as instances.

The dataclass is the only judge of a value. A bad value in a YAML file does not stop the node from
starting; it stops it from being configured, with the dataclass's message. A change by
`ros2 param set` is taken as a whole or refused with that message; so is one that a configured node
would not heed.
"""

from __future__ import annotations

from dataclasses import fields, replace
import difflib
from typing import Any, TYPE_CHECKING, TypeVar

from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.common.settings import config_from_mapping, setting_infos
from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)
from rclpy.parameter import Parameter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from embodied_r_ros.common.settings import SettingInfo
    from rclpy.node import Node

Config = TypeVar('Config')
_AT_CONFIGURE = 'takes effect at configure'
# Settings that nobody tunes on a robot are no parameters, by group; '' is that of the node itself.
NOT_TUNED = {
    '': 'silence_s depth_wait_s focus_deadline_s model_timeout_s map_save_s tf_wait_s '
    'confirm_within_s label_wait_s queue_mb',
    'arm': 'max_pose_age_s',
    'audit': 'max_still max_disorder max_dropped',
    'chat': 'model adapters connect_timeout_s retries backoff_s token_variable headers query',
    'classical': 'max_items',
    'detections': 'wait_s',
    'detector': 'overlap max_things threads',
    'fallback': 'first_wait_s longest_wait_s look_s patience_s',
    'keyframe': 'max_roll_rad content_change follow_with_pose jpeg_quality',
    'map': 'max_path_points max_rays full_delta_items',
    'playback': 'late_s',
    'reasoner': 'writes tools least_confidence top_p seed top_logprobs focus_keyframes '
    'temperature max_tokens',
    'shadow': 'in_line gives_way',
    'vlm': 'pixels_per_image max_tokens temperature seed retries backoff_s assumed_hfov_rad '
    'box_convention cache_entries cache_dir',
    'worker': 'kept_keyframes',
}
# Groups that a model profile sets.
_OF_PROFILES = {'chat', 'vlm', 'worker', 'reasoner'}
# Groups that were read in the last release, and what has taken their place.
_GONE_GROUPS = {'pipeline': 'each node tells on /diagnostics what it misses, leave it out'}
# Names that groups had in the last release, which are read in this one.
_OLD_GROUPS = {'desk': 'queue', 'ladder': 'fallback'}


class Parameters:
    """The parameters of a node, as instances of its config classes."""

    def __init__(
        self,
        node: Node,
        groups: Mapping[type[Any], str],
        at_configure: frozenset[type[Any]] = frozenset(),
    ) -> None:
        """Declare every setting of every group.

        Args:
            node: The node.
            groups: Prefix of the parameters of each config class; '' for none.
            at_configure: Those of them whose settings the node reads when it is configured only.
        """
        self.is_configured = False
        self._node = node
        self._at_configure = at_configure
        self.on_change: Callable[[], None] = lambda: None
        self._configs: dict[type[Any], Any] = {}
        self._problems: dict[type[Any], str] = {}
        self._invalid_values: dict[type[Any], dict[str, Any]] = {}  # where they are not allowed
        self._owners: dict[str, tuple[type[Any], str]] = {}
        self._fixed: dict[str, tuple[type[Any], str]] = {}  # settings that are no parameters
        self._suggested: dict[type[Any], dict[str, Any]] = {}  # of these, until they are taken up
        self.warnings: list[str] = []
        # rclpy has no public way to see a value before it is declared.
        given: dict[str, Parameter] = getattr(node, '_parameter_overrides', {})
        self._take_old_names(given, groups.values())
        overrides = {name: parameter.value for name, parameter in given.items()}
        self._chosen = set(overrides)  # by the user, at start or since
        self._is_suggesting = False
        for kind, prefix in groups.items():
            self._declare(node, prefix, kind, overrides)
        self._chosen -= self._fixed.keys()
        self._warn_of_unused(overrides, [prefix for prefix in groups.values() if prefix])
        node.add_on_set_parameters_callback(self._change)

    def config(self, kind: type[Config]) -> Config:
        """The settings of a group, as they are now.

        Raises:
            ConfigError: A value that was given at start is not allowed.
        """
        if kind in self._problems:
            raise ConfigError(self._problems[kind])
        config: Config = self._configs[kind]
        return config

    def suggest(self, kind: type[Any], values: Mapping[str, Any]) -> None:
        """Set what the user has not chosen in a group: to these values, or to its default.

        Raises:
            ConfigError: A value is not allowed.
        """
        targets = {**{name: getattr(kind(), name) for name in setting_infos(kind)}, **values}
        free = [
            Parameter(name, value=_plain(targets[field]))
            for name, (owner, field) in self._owners.items()
            if owner is kind and name not in self._chosen
        ]
        hidden = [
            field
            for name, (owner, field) in self._fixed.items()
            if owner is kind and name not in self._chosen
        ]
        self._is_suggesting = True
        self._suggested = {kind: {field: targets[field] for field in hidden}}
        try:
            result = self._node.set_parameters_atomically(free)
        finally:
            self._is_suggesting, self._suggested = False, {}
        if not result.successful:
            raise ConfigError(result.reason)

    def values(self) -> dict[str, Any]:
        """Every setting by its name, for the record."""
        return {
            name: getattr(self._configs[kind], field)
            for name, (kind, field) in sorted({**self._owners, **self._fixed}.items())
        }

    def _take_old_names(self, given: dict[str, Parameter], prefixes: Collection[str]) -> None:
        """Read values under the names that groups had in the last release."""
        for name in list(given):
            old, _, setting = name.partition('.')
            prefix = _OLD_GROUPS.get(old, '')
            if not setting or prefix not in prefixes or old in prefixes or not prefix:
                continue
            new = f'{prefix}.{setting}'
            given.setdefault(new, Parameter(new, value=given.pop(name).value))
            self.warnings.append(f'parameter {name!r} is called {new!r} now')

    def _declare(
        self, node: Node, prefix: str, kind: type[Any], overrides: Mapping[str, Any]
    ) -> None:
        names = {f.name: f'{prefix}.{f.name}' if prefix else f.name for f in fields(kind)}
        infos, defaults = setting_infos(kind), kind()
        fixed = infos.keys() & NOT_TUNED.get(prefix, '').split()
        self._fixed.update({names[field]: (kind, field) for field in fixed})
        values = {
            field: _fitting(overrides[name], getattr(defaults, field))
            for field, name in names.items()
            if name in overrides and field not in fixed
        }
        try:
            self._configs[kind] = config_from_mapping(kind, values)
        except ConfigError as error:
            self._configs[kind], self._invalid_values[kind] = defaults, values
            self._problems[kind] = f'parameter {prefix + "." if prefix else ""}{error}'
        for field, info in infos.items():
            if field in fixed:
                continue
            # A range would make rclpy refuse to start with a value outside it.
            ranged = kind not in self._problems
            late = self._is_fixed(kind, info)
            descriptor = _descriptor(info, getattr(defaults, field), ranged=ranged, fixed=late)
            node.declare_parameter(names[field], _plain(getattr(defaults, field)), descriptor)
            self._owners[names[field]] = (kind, field)

    def _is_fixed(self, kind: type[Any], info: SettingInfo) -> bool:
        """Tell whether a setting is read when the node is configured only."""
        return info.read_only or kind in self._at_configure

    def _warn_of_unused(self, overrides: Mapping[str, Any], prefixes: Sequence[str]) -> None:
        """Notice what was misspelt, or is no setting of a group that the node has.

        Other names are left alone: one file may hold the parameters of several nodes.
        """
        for name in sorted(overrides.keys() - self._owners.keys()):
            if gone := _GONE_GROUPS.get(name.partition('.')[0]):
                self.warnings.append(f'parameter {name!r} is not used: {gone}')
                continue
            if name in self._fixed:
                self.warnings.append(f'parameter {name!r} is not used: {self._advice(name)}')
                continue
            near = difflib.get_close_matches(name, self._owners, n=1, cutoff=0.8)
            group = next((f'{p}.' for p in prefixes if name.startswith(f'{p}.')), '')
            if near:
                hint = f'did you mean {near[0]!r}?'
            elif group:
                names = sorted(owner for owner in self._owners if owner.startswith(group))
                hint = f'known: {", ".join(names)}'
            if near or group:
                self.warnings.append(f'parameter {name!r} is not used: {hint}')

    def _advice(self, name: str) -> str:
        """What to do with a setting that is no parameter."""
        group, _, field = name.partition('.')
        if group in _OF_PROFILES:
            return f'give {field} in a model profile, or leave it out'
        kind, field = self._fixed[name]
        return f'it is always {_plain(getattr(kind(), field))!r} now, leave it out'

    def _change(self, parameters: Sequence[Parameter]) -> SetParametersResult:
        """Take a change of some parameters as a whole, or refuse it."""
        changes = {kind: dict(values) for kind, values in self._suggested.items()}
        for parameter in parameters:
            if parameter.name not in self._owners:
                continue
            kind, field = self._owners[parameter.name]
            if self.is_configured and self._is_fixed(kind, setting_infos(kind)[field]):
                reason = f'{parameter.name} {_AT_CONFIGURE}: deactivate, cleanup, set, configure'
                return SetParametersResult(successful=False, reason=reason)
            current = getattr(self._configs[kind], field)
            changes.setdefault(kind, {})[field] = _fitting(parameter.value, current)
        try:
            configs = {
                kind: replace(self._configs[kind], **{**self._invalid_values.get(kind, {}), **new})
                for kind, new in changes.items()
            }
        except ConfigError as error:
            return SetParametersResult(successful=False, reason=str(error))
        result = self._take_up(configs) if configs else SetParametersResult(successful=True)
        if result.successful and not self._is_suggesting:
            self._chosen.update(parameter.name for parameter in parameters)
        return result

    def _take_up(self, configs: Mapping[type[Any], Any]) -> SetParametersResult:
        """Let the node work with other settings; where it cannot, with those from before."""
        before = {kind: self._configs[kind] for kind in configs}
        self._configs.update(configs)
        try:
            self.on_change()
        except Exception as error:  # without a reply, who sets it would wait forever
            self._configs.update(before)
            return SetParametersResult(successful=False, reason=f'not taken up: {error}')
        for kind in configs:
            self._problems.pop(kind, None)
            self._invalid_values.pop(kind, None)
        return SetParametersResult(successful=True)


def _fitting(value: Any, like: Any) -> Any:
    """The value as the setting has it: whole numbers serve as floats, arrays are tuples."""
    is_array = isinstance(value, (list, tuple)) or hasattr(value, 'tolist')
    if isinstance(like, tuple) and is_array:
        return tuple(value)
    return float(value) if isinstance(like, float) and type(value) is int else value


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _descriptor(
    info: SettingInfo, default: Any, *, ranged: bool, fixed: bool
) -> ParameterDescriptor:
    constraints = []
    if info.choices:
        constraints.append(f'one of: {", ".join(info.choices)}')
    if fixed:
        constraints.append(_AT_CONFIGURE)
    # Typing is dynamic so that `rate: 5` in YAML serves a float; the dataclass checks the type.
    descriptor = ParameterDescriptor(
        description=info.description,
        additional_constraints='; '.join(constraints),
        dynamic_typing=True,
    )
    low, high = info.minimum, info.maximum
    if not ranged or low is None or high is None:
        return descriptor
    if isinstance(default, float):
        bounds = FloatingPointRange(from_value=float(low), to_value=float(high))
        descriptor.floating_point_range = [bounds]
    elif isinstance(default, int):
        descriptor.integer_range = [IntegerRange(from_value=int(low), to_value=int(high))]
    return descriptor
