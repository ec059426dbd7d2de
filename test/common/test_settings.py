# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass
import math

from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.common.settings import (
    config_from_mapping,
    setting,
    setting_infos,
    Settings,
)
import pytest


@dataclass(frozen=True)
class Example(Settings):
    share: float = setting(0.5, 'a share', between=(0, 1))
    mode: str = setting('auto', 'how', choices=('auto', 'never'))
    count: int = setting(3, 'how many', between=(0, 10))
    place: tuple[float, ...] = setting((0.0, 0.0), 'where')
    names: tuple[str, ...] = setting(('a',), 'which')


def test_mapping_fills_what_it_names() -> None:
    assert config_from_mapping(Example, {'share': 1}) == Example(share=1)


def test_whole_numbers_serve_in_an_array_of_floats() -> None:
    assert config_from_mapping(Example, {'place': (1, 2.5)}).place == (1, 2.5)


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match="no setting 'shar': did you mean 'share'"):
        config_from_mapping(Example, {'shar': 1.0})


@pytest.mark.parametrize(
    ('values', 'message'),
    [
        ({'share': 1.5}, 'share is 1.5: expected 0 to 1'),
        ({'share': math.nan}, 'share is nan: expected 0 to 1'),
        ({'mode': 'often'}, "mode is 'often': expected one of auto, never"),
        ({'count': 2.5}, 'count is 2.5: expected a value of type int'),
        ({'count': True}, 'count is True: expected a value of type int'),
        ({'place': (0.5, 'x')}, r"place is \(0.5, 'x'\): expected values of type float"),
        ({'place': (0.5, True)}, r'place is \(0.5, True\): expected values of type float'),
        ({'place': 0.5}, 'place is 0.5: expected a value of type tuple'),
        ({'names': (1,)}, r'names is \(1,\): expected values of type str'),
    ],
)
def test_value_that_is_not_allowed_is_named(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config_from_mapping(Example, values)


def test_every_setting_explains_itself() -> None:
    assert [info.description for info in setting_infos(Example).values()] == [
        'a share',
        'how',
        'how many',
        'where',
        'which',
    ]
