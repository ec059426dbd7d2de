# SPDX-License-Identifier: Apache-2.0
"""What a vision policy is shown: `python -m training.data.vision ROWS BAG… --out FOLDER`.

The image at the very stamp that a row is about, as a file, for vision-language models that are
trained with images in their prompts. The text of such a prompt tells nothing of what was seen.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass, fields
from pathlib import Path
import re
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.messages import IMAGE_TYPES
from embodied_r_ros.bags.reader import open_bag, topics_of_type
from embodied_r_ros.bags.sources import find_bags, open_source
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import write_whole
from embodied_r_ros.core.reasoning import prompts
from embodied_r_ros.core.scene.memory import MemoryConfig
from embodied_r_ros.core.types.images import encode_image, EncodedImage
from embodied_r_ros.data.episodes.episode import episode_id_of, read_keyframes
from embodied_r_ros.data.questions.row import read_rows, Row

from training.run.command import run_command

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from datasets import Dataset
    from embodied_r_ros.core.reasoning.prompts import Prompt


def image_prompt(row: Row, folder: Path) -> Prompt:
    """The prompt of a row whose image is shown instead of being told.

    Raises:
        InputError: The folder does not have its image, or it is about none.
    """
    file = image_file(row, folder)
    if file is None:
        msg = f'row {row.id!r} is about no single image: leave such types of questions out'
        raise InputError(msg)
    try:
        data = file.read_bytes()
    except OSError:
        msg = f'row {row.id!r} has no image in {folder}: write it there with training.data.vision'
        raise InputError(msg) from None
    return prompts.image_prompt(row.question, row.options, EncodedImage(data, 'jpeg'))


@dataclass(frozen=True)
class ShownRow(Row):
    """A row whose prompt shows its image; without its scene it is asked as any other."""

    images: Path = Path()

    def prompt(self, config: MemoryConfig) -> Prompt:
        """The prompt with the image; nothing of the scene is told, whatever the budget.

        Raises:
            InputError: Its image is missing.
        """
        del config
        return image_prompt(self._text_row(), self.images)

    def without_scene(self) -> Row:
        """The same question for who has seen nothing: a blind baseline."""
        return self._text_row().without_scene()

    def _text_row(self) -> Row:
        return Row(**{part.name: getattr(self, part.name) for part in fields(Row)})


def rows_with_images(rows: Iterable[Row], images: Path) -> list[Row]:
    """Rows for a vision policy, with the folder of their images.

    Raises:
        InputError: A row has no image there.
    """
    shown_rows: list[Row] = [ShownRow(**vars(row), images=images) for row in rows]
    for row in shown_rows:
        row.prompt(MemoryConfig())
    return shown_rows


def has_image(row: Row, folder: Path) -> bool:
    """Tell whether the image of a row is in a folder."""
    file = image_file(row, folder)
    return file is not None and file.exists()


def image_file(row: Row, folder: Path) -> Path | None:
    """Where the image of a row is kept; None: the row is not about one stamp."""
    stamp_ns = row.meta.get('stamp_ns')
    if not isinstance(stamp_ns, int):
        return None
    return folder / re.sub(r'[^\w.-]', '_', row.episode_id) / f'{stamp_ns}.jpg'


def save_images(rows: Iterable[Row], bags: Sequence[Path], folder: Path) -> int:
    """Save the images of rows; returns how many there are now.

    Raises:
        InputError: A bag cannot be read, or none of the rows has its image in them.
    """
    wanted: dict[str, dict[int, Path]] = defaultdict(dict)
    for row in rows:
        file = image_file(row, folder)
        if file:
            wanted[row.episode_id][int(file.stem)] = file
    count = 0
    for bag in bags:
        files = wanted.get(episode_id_of(bag), {})
        if not files:
            continue
        for stamp_ns, image in _images_at(bag, files):
            write_whole(files[stamp_ns], prompts.shown_image(image).data, makes_folder=True)
            count += 1
    if not count:
        msg = f'{", ".join(map(str, bags))}: no image at the stamp of any row'
        raise InputError(msg)
    return count


def _images_at(bag: Path, stamps: Container[int]) -> Iterator[tuple[int, EncodedImage]]:
    """Images of a bag at some stamps; of an episode without images those of its keyframes."""
    with open_bag(bag) as reader:
        has_images = bool(topics_of_type(reader, *IMAGE_TYPES))
    if not has_images:
        for keyframe in read_keyframes(bag):
            if keyframe.stamp_ns in stamps and keyframe.image.data:
                yield keyframe.stamp_ns, keyframe.image
        return
    with open_source(bag) as source:
        for image in source:
            if image.stamp_ns in stamps:
                yield image.stamp_ns, image.encoded or encode_image(image.image)


def image_dataset(rows: list[dict[str, Any]]) -> Dataset:
    """Examples as a data set, whose images are opened when they are wanted."""
    from datasets import Dataset, Image

    dataset = Dataset.from_list(rows)
    return dataset.cast_column('image', Image()) if rows and 'image' in rows[0] else dataset


def load_processor(folder: Path, min_pixels: int) -> Any:
    """The processor of a vision-language model, from this machine and without code of its own.

    Args:
        folder: With the model.
        min_pixels: Smaller images are enlarged to so many pixels; 0: as the model has it.

    Raises:
        InputError: It is not of such a model, or a library for images is not installed.
    """
    from transformers import AutoProcessor, ProcessorMixin

    more = {'min_pixels': min_pixels} if min_pixels else {}
    try:
        processor = AutoProcessor.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, **more
        )
    except (ImportError, OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        msg = f'{folder} has no processor for images that can be used here: {first}'
        raise InputError(msg) from None
    if not isinstance(processor, ProcessorMixin):  # of a language model: its tokenizer
        msg = f'{folder} has no processor for images: it reads text alone'
        raise InputError(msg)
    return processor


def _run(args: argparse.Namespace) -> int:
    count = save_images(read_rows(args.rows), find_bags(args.bags), args.out)
    sys.stderr.write(f'{count} images in {args.out}\n')
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Save the images of files of rows."""
    parser = argparse.ArgumentParser(prog='training.data.vision', description=__doc__)
    parser.add_argument('rows', type=Path, metavar='ROWS.jsonl')
    parser.add_argument('bags', type=Path, nargs='+', metavar='BAG', help='or folders of bags')
    parser.add_argument('--out', type=Path, required=True, metavar='FOLDER')
    return run_command(parser, _run, arguments)


if __name__ == '__main__':
    sys.exit(main())
