# SPDX-License-Identifier: Apache-2.0
"""Shipped files are found where they lie, folders are made empty, records name their nodes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from embodied_r_ros.common import files
from embodied_r_ros.common.errors import ConfigError, InputError
from embodied_r_ros.common.files import make_empty_folder, node_of
import pytest

if TYPE_CHECKING:
    from pathlib import Path


def test_folder_is_made_or_empty_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / 'a' / 'b'
    for _ in range(2):
        make_empty_folder(folder)
        assert folder.is_dir()
    for taken in (tmp_path, folder / 'file'):
        (folder / 'file').touch()
        with pytest.raises(InputError, match='is not an empty folder'):
            make_empty_folder(taken)
    with pytest.raises(InputError, match='cannot write to'):
        make_empty_folder(folder / 'file' / 'c')


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three install prefixes; the second has this package, and there is no clone."""
    prefixes = [tmp_path / name for name in ('other', 'here', 'another')]
    (tmp_path / 'here' / 'share' / 'embodied_r_ros' / 'config').mkdir(parents=True)
    monkeypatch.setattr(files, '_CLONE', tmp_path / 'no_clone')
    monkeypatch.setenv('AMENT_PREFIX_PATH', os.pathsep.join(map(str, prefixes)))
    return tmp_path


def test_installed_folder_is_found(workspace: Path) -> None:
    found = files.shared_path('config')
    assert found == workspace / 'here' / 'share' / 'embodied_r_ros' / 'config'


def test_missing_folder_is_looked_for_only_where_the_package_is(workspace: Path) -> None:
    with pytest.raises(ConfigError, match='models/arm is not installed') as error:
        files.shared_path('models', 'arm')
    assert str(workspace / 'here') in str(error.value)
    assert str(workspace / 'other') not in str(error.value)


def test_record_names_its_node() -> None:
    assert node_of('{"node": "/keyframe_extractor", "models": []}') == '/keyframe_extractor'


@pytest.mark.parametrize(
    'record', ['', 'text', '[]', '"node"', '{"package": "sim"}', '{"node": 3}', '[' * 100_000]
)
def test_record_of_somebody_else_names_no_node(record: str) -> None:
    assert not node_of(record)
