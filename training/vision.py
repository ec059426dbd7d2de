# SPDX-License-Identifier: Apache-2.0
"""What a vision policy is shown: `python -m training.vision ROWS BAG… --out FOLDER`.

The image at the very stamp that a row is about, as a file, for vision-language models that are
trained with images in their prompts. The text of such a prompt tells nothing of what was seen.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
import re
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.errors import EmbodiedRError, InputError
from embodied_r_ros.images import encode_image
from embodied_r_ros.questions.collect import find_bags
from embodied_r_ros.reasoning.memory import MemoryConfig
from embodied_r_ros.reasoning.prompts import NOTHING_SEEN
from embodied_r_ros.recordings.episode_bag import episode_id_of
from embodied_r_ros.recordings.sources import open_source
from embodied_r_ros.rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from embodied_r_ros.reasoning.prompts import Prompt
    from embodied_r_ros.rows import Row

_SHOWN = '(the image shows it)'


def image_prompt(row: Row) -> Prompt:
    """The prompt of a row whose image is shown instead of being told."""
    prompt = row.without_scene().prompt(MemoryConfig())
    user = prompt.user.replace(f'Seen:\n{NOTHING_SEEN}', f'Seen:\n{_SHOWN}', 1)
    return replace(prompt, user=user)


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
        with open_source(bag) as source:
            for image in source:
                file = files.get(image.stamp_ns)
                if file:
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes((image.encoded or encode_image(image.image)).data)
                    count += 1
    if not count:
        msg = f'{", ".join(map(str, bags))}: no image at the stamp of any row'
        raise InputError(msg)
    return count


def load_processor(folder: Path, min_pixels: int) -> Any:
    """The processor of a vision-language model, from this machine and without code of its own.

    Args:
        folder: With the model.
        min_pixels: Smaller images are enlarged to so many pixels; 0: as the model has it.

    Raises:
        InputError: It is not of such a model, or a library for images is not installed.
    """
    from transformers import AutoProcessor

    more = {'min_pixels': min_pixels} if min_pixels else {}
    try:
        return AutoProcessor.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, **more
        )
    except (ImportError, OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        msg = f'{folder} has no processor for images that can be used here: {first}'
        raise InputError(msg) from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Save the images of files of rows."""
    parser = argparse.ArgumentParser(prog='training.vision', description=__doc__)
    parser.add_argument('rows', type=Path, metavar='ROWS.jsonl')
    parser.add_argument('bags', type=Path, nargs='+', metavar='BAG', help='or folders of bags')
    parser.add_argument('--out', type=Path, required=True, metavar='FOLDER')
    args = parser.parse_args(arguments)
    try:
        count = save_images(read_rows(args.rows), find_bags(args.bags), args.out)
    except EmbodiedRError as error:
        sys.stderr.write(f'training.vision: error: {error}\n')
        return 2
    sys.stderr.write(f'{count} images in {args.out}\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())
