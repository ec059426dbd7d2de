# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from typing import TYPE_CHECKING

from embodied_r_ros.common import resources
from embodied_r_ros.common.errors import ConfigError
import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three install prefixes; the second has this package, and there is no clone."""
    prefixes = [tmp_path / name for name in ('other', 'here', 'another')]
    (tmp_path / 'here' / 'share' / 'embodied_r_ros' / 'config').mkdir(parents=True)
    monkeypatch.setattr(resources, '_CLONE', tmp_path / 'no_clone')
    monkeypatch.setenv('AMENT_PREFIX_PATH', os.pathsep.join(map(str, prefixes)))
    return tmp_path


def test_installed_folder_is_found(workspace: Path) -> None:
    found = resources.shared_path('config')
    assert found == workspace / 'here' / 'share' / 'embodied_r_ros' / 'config'


def test_missing_folder_is_looked_for_only_where_the_package_is(workspace: Path) -> None:
    with pytest.raises(ConfigError, match='models/nano is not installed') as error:
        resources.shared_path('models', 'nano')
    assert str(workspace / 'here') in str(error.value)
    assert str(workspace / 'other') not in str(error.value)
