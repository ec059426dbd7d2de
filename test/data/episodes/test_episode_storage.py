# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import BagError
from embodied_r_ros.data.episodes.record import StorageConfig
import pytest

if TYPE_CHECKING:
    from pathlib import Path


def test_folder_is_made(tmp_path: Path) -> None:
    StorageConfig(str(tmp_path / 'a' / 'b'), min_free_mb=0).check()
    assert list((tmp_path / 'a' / 'b').iterdir()) == []


def test_home_is_expanded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv('HOME', str(tmp_path))
    assert StorageConfig('~/episodes').folder() == tmp_path / 'episodes'


def test_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / 'file').touch()
    with pytest.raises(BagError, match=r'cannot be written to .*file: File exists'):
        StorageConfig(str(tmp_path / 'file')).check()


def test_full_disk_is_told(tmp_path: Path) -> None:
    with pytest.raises(BagError, match=r'MB left, 10000000 are needed: make room'):
        StorageConfig(str(tmp_path), min_free_mb=10_000_000).check()
