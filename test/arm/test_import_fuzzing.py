# SPDX-License-Identifier: Apache-2.0
"""Damaged datasets of demonstrations are imported, left out and counted, or refused in a line."""

from __future__ import annotations

from contextlib import redirect_stderr, redirect_stdout
from functools import cache
import io
import math
from pathlib import Path
import tempfile
from typing import Any, TYPE_CHECKING
from unittest.mock import patch

from embodied_r_ros.cli.main import main
from hypothesis import assume, given
from hypothesis import strategies as st
import pytest

from test.arm.datasets import (
    CAMERA,
    lerobot_v2,
    lerobot_v3,
    MAPPING,
    read,
    rlbench,
    write,
)
from test.fuzzing import damage

if TYPE_CHECKING:
    from collections.abc import Callable

pyarrow = pytest.importorskip('pyarrow')
pytest.importorskip('av')
SMALL = (3, 4)  # rows of its two episodes
FORMS: dict[str, Callable[[Path], None]] = {
    'v2 with images': lerobot_v2,
    'v2 with videos': lambda root: lerobot_v2(root, 'video', 'v2.0'),
    'v3': lerobot_v3,
    'RLBench as JSON': lambda root: rlbench(root, as_json=True),
    'RLBench as arrays': lambda root: rlbench(root, as_json=False),
}
VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [None, math.nan, math.inf, -1.0, 0.0, 1e300, 1, 10**12, [], [1.0], [None], '', 'x', {}, b'']
)


@cache
def files(form: str) -> dict[str, bytes]:
    """A whole dataset: contents by path."""
    with tempfile.TemporaryDirectory() as folder, patch('test.arm.datasets.ROWS', SMALL):
        root = Path(folder) / 'set'
        FORMS[form](root)
        paths = [path for path in sorted(root.rglob('*')) if path.is_file()]
        return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def write_files(root: Path, contents: dict[str, bytes]) -> None:
    for name, content in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


def check_import(folder: Path, form: str) -> None:
    """Import what lies in a folder, and see that it is whole, counted, or refused in one line."""
    image = 'front_rgb' if form.startswith('RLBench') else CAMERA
    (folder / 'mapping.yaml').write_text(f'{MAPPING}image: {image}\n')
    arguments = ['--mapping', str(folder / 'mapping.yaml'), '--out', str(folder / 'out')]
    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        code = main(['demos', 'import', str(folder / 'set'), *arguments])
    told = errors.getvalue()
    bags = sorted((folder / 'out').iterdir()) if (folder / 'out').exists() else []
    assert not any(bag.name.startswith('.') for bag in bags)
    if code:
        assert code == 2, told
        assert told.count('\n') == 1
        assert told.startswith('embodied-r: error: ')
        return
    assert len(bags) == len(output.getvalue().splitlines())
    assert len(bags) == len(SMALL) or 'left out' in told
    for bag in bags:
        shown, images = read(bag)
        assert len(shown) == len(images)
        assert len(shown) in SMALL


@pytest.mark.parametrize('form', FORMS)
def test_the_datasets_that_are_damaged_are_whole_before(tmp_path: Path, form: str) -> None:
    write_files(tmp_path / 'set', files(form))
    check_import(tmp_path, form)
    assert len(list((tmp_path / 'out').iterdir())) == 2


@given(st.sampled_from(sorted(FORMS)), st.data())
def test_a_dataset_with_a_damaged_file_is_imported_or_refused(
    form: str, data: st.DataObject
) -> None:
    contents = dict(files(form))
    name = data.draw(st.sampled_from(sorted(contents)))
    if data.draw(st.booleans()) and data.draw(st.booleans()):
        del contents[name]
    else:
        contents[name] = data.draw(damage([contents[name]]))
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder) / 'set', contents)
        check_import(Path(folder), form)


def change_columns(data: st.DataObject, columns: dict[str, list[Any]]) -> None:
    """Change a cell, a column, or the order or number of rows."""
    name = data.draw(st.sampled_from(sorted(columns)))
    count = len(columns[name])
    row = data.draw(st.integers(0, count - 1))
    kind = data.draw(st.sampled_from(['cell', 'column', 'drop', 'cut', 'double', 'swap', 'part']))
    if kind == 'cell':
        columns[name][row] = data.draw(VALUES)
    elif kind == 'part' and isinstance(columns[name][row], list) and columns[name][row]:
        columns[name][row][0] = data.draw(VALUES)
    elif kind == 'column':
        columns[name] = [data.draw(VALUES)] * count
    elif kind == 'drop':
        del columns[name]
    orders = {
        'cut': [*range(row), *range(row + 1, count)],
        'double': [*range(row), row, *range(row, count)],
        'swap': [*range(row, count), *range(row)],
    }
    if kind in orders:
        columns.update(
            {key: [values[at] for at in orders[kind]] for key, values in columns.items()}
        )


@given(st.sampled_from(['v2 with images', 'v2 with videos', 'v3']), st.data())
def test_a_dataset_with_other_tables_is_imported_or_refused(
    form: str, data: st.DataObject
) -> None:
    from pyarrow import parquet

    names = [name for name in sorted(files(form)) if name.endswith('.parquet')]
    name = data.draw(st.sampled_from(names))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'set' / name
        write_files(Path(folder) / 'set', files(form))
        columns = parquet.read_table(path, partitioning=None).to_pydict()
        change_columns(data, columns)
        try:
            changed = pyarrow.table(columns)
            write(path, changed)
        except (pyarrow.ArrowException, TypeError):  # values that no table can hold together
            assume(False)
        check_import(Path(folder), form)
