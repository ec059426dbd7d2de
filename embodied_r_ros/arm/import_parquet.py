# SPDX-License-Identifier: Apache-2.0
"""Columns of parquet files: numbers, or a line that says which row is none; cells of images."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.storage import pointer_advice
from embodied_r_ros.common.errors import ConfigError, EmbodiedRError, InputError
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from embodied_r_ros.arm.import_episode import SourcePlace
    from numpy.typing import NDArray

_BATCH_ROWS = 64  # of images at a time
_START_BYTES = 64
_MAX_VALUES = 20_000_000  # of a column in one file: 26 hours of seven numbers at 30 Hz
_MAX_BYTES = 500_000_000  # of the same


@contextmanager
def readable(what: str, file: Path) -> Iterator[None]:
    """Turn any error of the library over a damaged file into one line: what failed, and why.

    Raises:
        InputError: The library failed.
    """
    try:
        yield
    except EmbodiedRError:
        raise
    except Exception as error:
        text = _pointer_advice(file) or ' '.join(str(error).split()) or type(error).__name__
        msg = f'{what}: {text}'
        raise InputError(msg) from None


def _pointer_advice(file: Path) -> str:
    try:
        with file.open('rb') as content:
            return pointer_advice(content.read(_START_BYTES))
    except OSError:
        return ''


class ParquetFile:
    """A parquet file: some columns in memory; those of images are read when asked for."""

    def __init__(self, path: Path, columns: Collection[str] | None = None) -> None:
        """Read a file.

        Args:
            path: The file.
            columns: Those that are read now, where the file has them; None: all.

        Raises:
            ConfigError: pyarrow is missing.
            InputError: It cannot be read.
        """
        try:
            from pyarrow import parquet
        except ImportError:
            msg = 'datasets of LeRobot need the library pyarrow: pip install pyarrow'
            raise ConfigError(msg) from None
        self.path = path
        with self._readable():
            schema = parquet.read_metadata(path).schema
            leaves = map(schema.column, range(len(schema)))
            # Not written out: a small file may repeat one text without end.
            texts = [leaf.path for leaf in leaves if leaf.physical_type == 'BYTE_ARRAY']
            self._file = parquet.ParquetFile(path, read_dictionary=texts)
            self.columns: list[str] = self._file.schema_arrow.names
            wanted = self.columns if columns is None else columns
            read_now = [name for name in self.columns if name in wanted]
            self._check_counts(read_now)
            self._table = self._file.read(read_now)
            for name in read_now:
                self._check_bytes(name, sum(map(_bytes_of, self._table[name].chunks)))
            self.rows: int = self._file.metadata.num_rows
        self._cells: dict[str, _Cells] = {}

    def values(self, name: str) -> list[Any]:
        """A column as Python values.

        Raises:
            InputError: There is no such column, or it cannot be read.
        """
        self._check_column(name)
        with self._readable():
            values: list[Any] = self._table[name].to_pylist()
        return values

    def numbers(
        self, name: str, begin: int, count: int, place: SourcePlace
    ) -> NDArray[np.float64]:
        """Some rows of a column of numbers, or of lists of numbers. Shape (count, …).

        Raises:
            InputError: There is no such column, or a row of it is null, of another length than
                the others, or holds no numbers.
        """
        self._check_column(name)
        with self._readable():
            return _numbers(self._table[name].slice(begin, count), name, place)

    def whole_numbers(self, name: str) -> NDArray[np.int64]:
        """A whole column of integers. Shape (N,).

        Raises:
            InputError: There is no such column, or a row of it is no integer.
        """
        self._check_column(name)
        with self._readable():
            column = self._table[name]
            for row, value in enumerate(column.to_pylist()):
                if type(value) is not int:
                    msg = (
                        f'{self.path}: column {name!r}, row {row} is {value!r}: expected integers'
                    )
                    raise InputError(msg)
            return np.array(column.to_pylist(), np.int64)

    def cells(self, name: str, begin: int, count: int) -> Iterator[Any]:
        """The cells of some rows of a column that was not read; in order, each is read once.

        Raises:
            InputError: There is no such column, or it cannot be read.
        """
        self._check_column(name)
        if name not in self._cells or self._cells[name].next_row > begin:
            self._cells[name] = _Cells(self._file, name, begin)
        with self._readable():
            yield from self._cells[name].read(begin, count)

    def _check_counts(self, names: Collection[str]) -> None:
        """See that columns fit in memory: a small file may repeat one number without end.

        Raises:
            InputError: One does not.
        """
        metadata, counts, packed = self._file.metadata, Counter[str](), Counter[str]()
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            for chunk in map(group.column, range(group.num_columns)):
                owners = (n for n in names if f'{chunk.path_in_schema}.'.startswith(f'{n}.'))
                owner = next(owners, '')
                counts[owner] += chunk.num_values
                packed[owner] += chunk.total_uncompressed_size
        for name in names:
            if counts[name] > _MAX_VALUES:
                msg = (
                    f'{self.path}: column {name!r} has {counts[name]:,} values: expected at most '
                    f'{_MAX_VALUES:,} in a file'
                )
                raise InputError(msg)
            self._check_bytes(name, packed[name])

    def _check_bytes(self, name: str, count: int) -> None:
        if count > _MAX_BYTES:
            msg = (
                f'{self.path}: column {name!r} has {count:,} bytes: expected at most '
                f'{_MAX_BYTES:,} in a file'
            )
            raise InputError(msg)

    def _check_column(self, name: str) -> None:
        if name not in self.columns:
            known = ', '.join(self.columns) or 'none'
            msg = f'{self.path} has no column {name!r}: it has {known}'
            raise InputError(msg)

    def _readable(self) -> AbstractContextManager[None]:
        return readable(f'{self.path} cannot be read', self.path)


def _bytes_of(values: Any) -> int:
    """How much an array takes when each of its texts is written out."""
    from pyarrow import compute, types

    if types.is_dictionary(values.type):
        lengths = compute.binary_length(values.dictionary).cast('int64')
        return compute.sum(lengths.take(values.indices)).as_py() or 0
    if types.is_struct(values.type):
        return sum(map(_bytes_of, values.flatten()))
    if any(is_list(values.type) for is_list in _list_kinds()):
        return _bytes_of(values.flatten())
    return int(values.nbytes)


class _Cells:
    """Cells of a column, from the row group on that holds a row."""

    def __init__(self, file: Any, name: str, row: int) -> None:
        groups, self.next_row = range(file.metadata.num_row_groups), 0
        for group in groups:
            rows = file.metadata.row_group(group).num_rows
            if self.next_row + rows > row:
                groups = groups[group:]
                break
            self.next_row += rows
        batches = file.iter_batches(_BATCH_ROWS, row_groups=list(groups), columns=[name])
        self._coming = (
            cell for batch in batches for cell in batch.column(batch.schema.names.index(name))
        )

    def read(self, begin: int, count: int) -> Iterator[Any]:
        """As Python values; fewer where the file has fewer."""
        for _ in islice(self._coming, begin - self.next_row):
            pass
        self.next_row = begin
        for cell in islice(self._coming, count):
            self.next_row += 1
            yield cell.as_py()


def _numbers(column: Any, name: str, place: SourcePlace) -> NDArray[np.float64]:
    from pyarrow import types

    values = column.combine_chunks()
    shape = [len(values)]
    while True:
        values = getattr(values, 'storage', values)  # of arrays of the library `datasets`
        per_row = max(1, int(np.prod(shape[1:])))
        if values.null_count:
            row = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False))) // per_row
            msg = f'{place.of(name, row)} is null, or holds null: expected numbers'
            raise InputError(msg)
        if not any(is_list(values.type) for is_list in _list_kinds()):
            break
        values, width = _flat(values, per_row, name, place)
        shape.append(width)
    kinds = (types.is_integer, types.is_floating, types.is_boolean)
    if not any(is_kind(values.type) for is_kind in kinds):
        kind = values.type.value_type if types.is_dictionary(values.type) else column.type
        msg = f'{place.of(name)} is of type {kind}: expected numbers'
        raise InputError(msg)
    flat = values.to_numpy(zero_copy_only=False).astype(np.float64)
    return np.asarray(flat.reshape(shape))


def _list_kinds() -> tuple[Any, ...]:
    from pyarrow import types

    return types.is_list, types.is_large_list, types.is_fixed_size_list


def _flat(lists: Any, per_row: int, name: str, place: SourcePlace) -> tuple[Any, int]:
    """The values in lists, which are all of one length, and that length."""
    from pyarrow import compute

    lengths = compute.list_value_length(lists).to_numpy(zero_copy_only=False)
    width = int(np.bincount(lengths).argmax()) if len(lengths) else 0
    odd = np.flatnonzero(lengths != width)
    if not width:
        msg = f'{place.of(name)} has no numbers: expected some in each row'
        raise InputError(msg)
    if len(odd):
        msg = (
            f'{place.of(name, int(odd[0]) // per_row)} has {lengths[odd[0]]} numbers: expected '
            f'{width} as in other rows'
        )
        raise InputError(msg)
    return compute.list_flatten(lists), width
