# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import make_empty_folder
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
