# SPDX-License-Identifier: Apache-2.0
"""The questions that recipes train on: of one split, of the types that they list, and how told."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.scene.memory import MemoryConfig
from embodied_r_ros.data.questions.row import read_rows, Row

from training.data.samples import PassRateBand, teaching_samples
from training.data.vision import has_image, image_file, image_prompt
from training.eval.generation import prompt_messages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(kw_only=True)
class AskingArguments:
    """Settings of every recipe: what to train, on which questions, and how they are asked."""

    rows: list[str] = field(kw_only=False, metadata={'help': 'files of rows'})
    model: str = field(
        kw_only=False, metadata={'help': 'folder to start from; of sft also a file in GGUF'}
    )
    samples: str = field(
        default='',
        metadata={'help': 'completions of training.rollouts: only rows whose pass rate teaches'},
    )
    lora_rank: int = field(default=0, metadata={'help': 'rank of a LoRA adapter; 0: all weights'})
    threads: int = field(default=0, metadata={'help': 'CPU threads; 0: as torch chooses'})
    kinds: list[str] = field(
        default_factory=list, metadata={'help': 'types of questions; none: all'}
    )
    images: str = field(
        default='',
        metadata={'help': 'folder of training.data.vision: a VLM is shown the image instead'},
    )
    min_pixels: int = field(
        default=0,
        metadata={'help': 'smaller images are enlarged to so many; 0: as the model has it'},
    )
    token_budget: int = field(default=1200, metadata={'help': 'tokens of the scene in a prompt'})
    min_pass_rate: float = field(
        default=0.2, metadata={'help': 'rows of `samples` that are answered rightly so often'}
    )
    max_pass_rate: float = field(default=0.8, metadata={'help': 'and so often at most'})

    def chosen_rows(self, split: str) -> Iterator[Row]:
        """The rows of a split that are asked for; where images are shown, those with one."""
        images = Path(self.images) if self.images else None
        rows = rows_of_kinds(self.rows, self.kinds, split)
        return (row for row in rows if images is None or has_image(row, images))

    def teaching_samples(self, anchor_share: float) -> dict[str, dict[str, Any]]:
        """The samples that teach, by the ids of their rows.

        Raises:
            InputError: The file cannot be read, or no row of it teaches.
        """
        band = PassRateBand(self.min_pass_rate, self.max_pass_rate)
        return teaching_samples(Path(self.samples), anchor_share, band)

    def conversation(self, row: Row) -> dict[str, Any]:
        """The prompt of a row, which tells what was seen or comes with the file of its image."""
        if not self.images:
            return {'prompt': prompt_messages(row.prompt(MemoryConfig(self.token_budget)))}
        prompt = prompt_messages(image_prompt(row, Path(self.images)))
        return {'prompt': prompt, 'image': str(image_file(row, Path(self.images)))}


def rows_of_kinds(files: Sequence[str], kinds: Sequence[str], split: str) -> Iterator[Row]:
    """The rows of a split, in their order.

    Args:
        files: Files of rows, which count together.
        kinds: Types of questions; none: all.
        split: Theirs.

    Raises:
        InputError: A file cannot be read, or for training a type that is listed has no row: at the
            end, once all files were read.
    """
    kinds_in_rows = set()
    for file in files:
        for row in map(Row.without_calls, read_rows(Path(file))):
            if row.split == split and (not kinds or row.question_type in kinds):
                kinds_in_rows.add(row.question_type)
                yield row
    missing = [kind for kind in kinds if kind not in kinds_in_rows]
    if split == 'train' and missing:  # few rows may leave a type without any for validation
        msg = (
            f'kinds lists {", ".join(missing)}, of which {", ".join(files)} has no training row: '
            'add a file that has, or list only what is there'
        )
        raise InputError(msg)


def rows_of_split(file: Path, split: str | None) -> list[Row]:
    """The rows of a file that are of a split; None: of any. There is at least one.

    Raises:
        InputError: The file cannot be read, or there is none; names the splits that it has.
    """
    splits: Counter[str] = Counter()
    rows = []
    for row in map(Row.without_calls, read_rows(file)):
        splits[row.split] += 1
        if split in (None, row.split):
            rows.append(row)
    if not splits:
        msg = f'{file} has no rows at all: derive some (embodied-r questions)'
        raise InputError(msg)
    if not rows:
        there = ', '.join(f'{name!r} ({count} rows)' for name, count in sorted(splits.items()))
        msg = f'{file} has no rows of split {split!r}: name one that it has, {there}'
        raise InputError(msg)
    return rows
