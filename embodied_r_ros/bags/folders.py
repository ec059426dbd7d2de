# SPDX-License-Identifier: Apache-2.0
"""Folders of images: which streams they hold, when each image was taken, and their depth.

Images are of one stream where their names differ in one number alone. That number may be a time,
as TUM (seconds), EuRoC (nanoseconds) and cameras (dates) write it; KITTI lists times in a file.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from decimal import Decimal, InvalidOperation
from functools import partial
from itertools import islice, pairwise
import logging
import re
from typing import TYPE_CHECKING

from embodied_r_ros.bags.depth import depth_metres_of_png, DepthConfig, why_other_view
from embodied_r_ros.bags.images import Damage
from embodied_r_ros.bags.storage import pointer_advice
from embodied_r_ros.common.errors import ImageError, SourceError
from embodied_r_ros.common.work import done_ahead
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.core.types.images import (
    decode_image,
    EncodedImage,
    image_format,
    StampedImage,
    Stretch,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

_LOG = logging.getLogger(__name__)
DEFAULT_RATE_HZ = 10.0
ASSUMED = (
    '%s has no times: %g images a second are assumed, so that what takes how long is not known; '
    '--set source.rate_hz=HZ tells it'
)
IMAGE_SUFFIXES = {'.jpg', '.jpeg', '.png', '.webp', '.bmp', '.tif', '.tiff'}
_OTHER_IMAGES = {'.heic', '.heif', '.avif', '.gif', '.pgm', '.ppm', '.jp2', '.dng', '.raw'}
_OTHER_IMAGES |= {'.exr', '.jfif', '.tga', '.cr2', '.nef', '.arw'}
_START_BYTES = 64  # of a file, which are looked at
_MOST_NAMED = 6  # streams in a message
_MOST_CAMERAS = 16  # values of a number that tells streams apart
_LISTS_OF_TIMES = ('timestamps.txt', 'times.txt')
_DATE = (
    r'(?:19|20)[0-9]{2}[-_.]?[01][0-9][-_.]?[0-3][0-9][-_. T]?'
    r'[0-2][0-9][-_.:]?[0-5][0-9][-_.:]?[0-5][0-9](?:\.[0-9]+)?'
)
_NUMBERS = rf'(?<![0-9])(?:{_DATE}|[0-9]{{9,10}}(?:\.[0-9]+|[-_][0-9]{{9}}))(?![0-9])|[0-9]+'
_DECIMALS = r'[0-9]+\.[0-9]+'


@dataclass(frozen=True)
class NamedImage:
    """A file, with the number in its name that counts from file to file."""

    file: Path
    number: Decimal | None = None  # None: its name has none
    stamp_ns: int | None = None  # where the number is a time


@dataclass(frozen=True)
class FolderStream:
    """The images of one stream, in the order of the numbers in their names."""

    images: tuple[NamedImage, ...]
    depth: tuple[NamedImage, ...]  # images of 16 bits that may belong to them

    @property
    def folder(self) -> Path:
        """The folder that they are in."""
        return self.images[0].file.parent

    def stamps(self, rate_hz: float | None) -> tuple[list[int], bool]:
        """When each image was taken [ns], and whether that is known.

        Args:
            rate_hz: Images a second, whatever names and lists say; None: as these say, else 10.
        """
        if rate_hz is None:
            own = [image.stamp_ns for image in self.images if image.stamp_ns is not None]
            for times in (own, _listed_times(self.folder, len(self.images))):
                if len(times) == len(self.images):
                    if all(before < after for before, after in pairwise(times)):
                        return times, True
                    text = 'the times of the images of %s do not rise and are not used'
                    _LOG.warning(text, self.folder)
        is_known, rate_hz = rate_hz is not None, rate_hz or DEFAULT_RATE_HZ
        if not is_known:
            _LOG.warning(ASSUMED, self.folder, rate_hz)
        stamps = [round(index / rate_hz * NS_PER_S) for index in range(len(self.images))]
        return stamps, is_known


def folder_stream(folder: Path, name: str | None) -> FolderStream:
    """A stream of images in a folder; files that are left out are logged.

    Args:
        folder: The folder.
        name: A file of the stream, or what its names have in common and no other's; None: the
            only stream there is.

    Raises:
        SourceError: There are no images, or several streams and none is named.
    """
    streams = _streams(_image_files(folder))
    chosen = _named_stream(folder, streams, name)
    beside = folder.resolve().parent / 'depth'
    depth = [stream for stream in streams if stream is not chosen and _is_depth(stream)]
    if beside.is_dir() and beside != folder.resolve():
        depth = _streams([file for file in beside.iterdir() if file.suffix.lower() == '.png'])
    return FolderStream(chosen, tuple(image for stream in depth for image in stream))


def files_of_folder(folder: Path) -> list[Path]:
    """The files that decide what a folder of images gives."""
    depth = folder.resolve().parent / 'depth'
    files = [file for each in (folder, depth) if each.is_dir() for file in sorted(each.iterdir())]
    images = [file for file in files if file.suffix.lower() in IMAGE_SUFFIXES]
    return [file for file in (*images, *_lists_of_times(folder)) if file.is_file()]


def _image_files(folder: Path) -> list[Path]:
    """The images of a folder; other files are logged."""
    named = [
        file
        for file in folder.iterdir()
        if file.suffix.lower() in IMAGE_SUFFIXES and not file.name.startswith('.')
    ]
    files = [file for file in named if file.is_file()]
    if unknown := [file for file in folder.iterdir() if file.suffix.lower() in _OTHER_IMAGES]:
        text = '%d files of %s are left out: images of these kinds are not read; the first: %s'
        _LOG.warning(text, len(unknown), folder, min(unknown).name)
    if others := sorted(file.name for file in named if file not in set(files)):
        text = (
            '%d of %d images of %s are left out: they are folders or broken links; the first: %s'
        )
        _LOG.warning(text, len(others), len(named), folder, others[0])
    if not files:
        inner = next((child for child in sorted(folder.iterdir()) if child.is_dir()), None)
        hint = f'; it has folders, such as {inner.name}: give one of them' if inner else ''
        msg = (
            f'{folder} has no images: expected files named '
            f'{", ".join(sorted(IMAGE_SUFFIXES))}, or a bag{hint}'
        )
        raise SourceError(msg)
    return files


def _named_stream(
    folder: Path, streams: list[tuple[NamedImage, ...]], name: str | None
) -> tuple[NamedImage, ...]:
    """The stream of a name, or the only one.

    Raises:
        SourceError: There is no such one, or none is named.
    """
    several = len(streams) > 1
    if name is None and not several:
        return streams[0]
    matches = [
        stream for stream in streams if name and name in {each.file.name for each in stream}
    ] or [stream for stream in streams if name and name in stream[0].file.name]
    if len(matches) == 1:
        return matches[0]
    if not several:
        msg = f'{folder} is a folder and has no topic {name!r}: leave the topic out'
        raise SourceError(msg)
    such = [f'{len(stream)} such as {stream[0].file.name}' for stream in streams[:_MOST_NAMED]]
    what = f'has {len(streams)} streams of images'
    if name is not None:
        what = f'has {len(matches) or "no"} streams named {name!r}'
    msg = (
        f'{folder} {what} ({", ".join(such)}): choose one with --topic, by the name of an image '
        'or a part that no other stream has'
    )
    raise SourceError(msg)


def _is_depth(stream: tuple[NamedImage, ...]) -> bool:
    first = stream[0].file
    return first.suffix.lower() == '.png' and 'depth' in re.split('[^a-z]+', first.stem.lower())


def _streams(files: Sequence[Path]) -> list[tuple[NamedImage, ...]]:
    """Files by streams, each in its order; those that are alone with their kind of name are told.

    Where most are, names tell nothing, and all are one stream.
    """
    stems = {file.stem for file in files}
    are_times = all(re.fullmatch(_DECIMALS, stem) for stem in stems)
    groups: dict[tuple[str, ...], list[_Name]] = {}
    for file in files:
        name = _Name(file, _DECIMALS if are_times else _NUMBERS)
        kind = file.suffix.lower() if len(stems) < len(files) else ''
        groups.setdefault((*name.words, kind), []).append(name)
    streams = [stream for group in groups.values() for stream in _by_cameras(group)]
    several = [stream for stream in streams if len(stream) > 1]
    alone = [stream[0] for stream in streams if len(stream) == 1]
    if not several or (len(several) == 1 and len(alone) >= len(several[0])):
        several, alone = [[name for stream in streams for name in stream]], []
    if len(several) == 1 and alone:
        text = '%d images of %s are left out: no other has a name like theirs; the first: %s'
        first = min(name.file for name in alone)
        _LOG.warning(text, len(alone), first.parent, first.name)
    ordered = [_ordered(stream, are_times=are_times) for stream in several if stream]
    return sorted(ordered, key=lambda stream: stream[0].file.name)


class _Name:
    """The words and numbers of a file's name, in turns; the first and last are words."""

    def __init__(self, file: Path, numbers: str) -> None:
        self.file = file
        parts = re.split(f'({numbers})', file.stem)
        self.words, self.numbers = parts[::2], parts[1::2]

    def order(self) -> list[tuple[Decimal, str]]:
        """Sort key in which image2 comes before image10, and 1.25 s before 1.5 s."""
        key: list[tuple[Decimal, str]] = []
        for word, number in zip(self.words, [*self.numbers, ''], strict=True):
            key.append((Decimal(0), word))
            if number:
                key.append((_value(number), ''))
        return [*key, (Decimal(0), self.file.suffix), (Decimal(0), self.file.name)]


def _by_cameras(names: list[_Name]) -> list[list[_Name]]:
    """Files whose names have the same words, by the numbers in them that count cameras.

    Such a number stands right after a word, or the others begin anew with it.
    """
    places = range(len(names[0].numbers))
    values = [{name.numbers[place] for name in names} for place in places]
    counter = _counter(names)
    repeats = len(values[counter]) < len(names) if values else False
    cameras = [
        place
        for place in places
        if place != counter
        and len(values[place]) <= _MOST_CAMERAS
        and (repeats or names[0].words[place][-1:].isalpha())
    ]
    groups: dict[tuple[str, ...], list[_Name]] = {}
    for name in names:
        groups.setdefault(tuple(name.numbers[place] for place in cameras), []).append(name)
    return list(groups.values())


def _counter(names: Sequence[_Name]) -> int:
    """Place of the number that goes on from file to file: it has most values, or is a time."""

    def order(place: int) -> tuple[int, bool, int]:
        values = {name.numbers[place] for name in names}
        return len(values), all(map(_time_ns, values)), place

    return max(range(min(len(name.numbers) for name in names)), key=order, default=0)


def _ordered(names: list[_Name], *, are_times: bool) -> tuple[NamedImage, ...]:
    counter = _counter(names)
    images = []
    for name in sorted(names, key=_Name.order):
        number = name.numbers[counter] if len(name.numbers) > counter else ''
        stamp_ns = _time_ns(number)
        if are_times and stamp_ns is None:
            stamp_ns = int(Decimal(number) * NS_PER_S)
        images.append(NamedImage(name.file, _value(number) if number else None, stamp_ns))
    return tuple(images)


def _value(number: str) -> Decimal:
    stamp_ns = _time_ns(number)
    if stamp_ns is not None:
        return Decimal(stamp_ns) / NS_PER_S
    return Decimal(number if re.fullmatch(_DECIMALS, number) else re.sub('[^0-9]', '', number))


def _time_ns(number: str) -> int | None:
    """Time since 1970 that a number is [ns]; None: it is another one.

    It is a date and time of day (UTC), or seconds of ten digits with or without decimals, also as
    milli-, micro- or nanoseconds.
    """
    digits = re.sub('[^0-9]', '', number)
    if re.fullmatch(_DATE, number):
        try:
            date = datetime.strptime(digits[:14], '%Y%m%d%H%M%S').replace(tzinfo=timezone.utc)
        except ValueError:
            return None
        seconds, decimals = int(date.timestamp()), digits[14:]
    else:
        seconds, decimals = int(digits[:10] or 0), digits[10:]
        is_whole = digits == number and len(digits) not in (10, 13, 16, 19)
        if is_whole or not NS_PER_S <= seconds < 2**31 or not digits.startswith(number[:10]):
            return None
    return seconds * NS_PER_S + int(decimals[:9].ljust(9, '0'))


def _lists_of_times(folder: Path) -> list[Path]:
    """Where KITTI lists the times of images: in their folder, or in the one above."""
    return [each / name for each in (folder, folder.resolve().parent) for name in _LISTS_OF_TIMES]


def _listed_times(folder: Path, count: int) -> list[int]:
    """The times [ns] in a file beside images; empty: there is none for as many images."""
    for file in _lists_of_times(folder):
        if not file.is_file():
            continue
        try:
            with file.open(encoding='utf-8') as lines:
                some = (line.strip() for line in lines)
                texts = [*islice((line for line in some if line[:1] not in {'', '#'}), count + 1)]
            times = [_listed_time_ns(text) for text in texts]
        except (OSError, ValueError, InvalidOperation, OverflowError) as error:
            _LOG.warning('%s lists no times that can be read: %s', file, error)
            continue
        if len(times) == count:
            return times
        much = 'more' if len(times) > count else len(times)
        text = '%s has %s times for the %d images of %s and is not used'
        _LOG.warning(text, file, much, count, folder)
    return []


def _listed_time_ns(text: str) -> int:
    first = re.split('[,;\t]', text)[0].strip()
    stamp_ns = _time_ns(first)
    return int(Decimal(first.split()[0]) * NS_PER_S) if stamp_ns is None else stamp_ns


class FolderDepth:
    """Depth images beside those of a folder, by the same name, the nearest time, or number."""

    def __init__(self, stream: FolderStream, config: DepthConfig) -> None:
        """Take the stream whose depth it is."""
        self._by_stem = {each.file.stem: each.file for each in stream.depth}
        timed = [each for each in stream.depth if each.stamp_ns is not None]
        self._by_time = sorted((each.stamp_ns or 0, each.file) for each in timed)
        numbered = [each for each in stream.depth if each.number is not None]
        self._by_number = {each.number: each.file for each in numbered}
        self._config = config
        self._unpaired = 0
        self._lost: list[str] = []  # what was wrong with each one that was left out

    def with_depth(self, image: StampedImage, named: NamedImage) -> StampedImage:
        """The image of a file with its depth, where there is some that can be read."""
        file = self._file(named)
        if file is None:
            self._unpaired += 1
            return image
        height, width = image.image.shape[:2]
        try:
            return replace(image, depth=self._read(file, (width, height)))
        except (OSError, ImageError) as error:
            self._lost.append(f'{file.name}: {error}')
            return image

    def _file(self, named: NamedImage) -> Path | None:
        if named.file.stem in self._by_stem:
            return self._by_stem[named.file.stem]
        if named.stamp_ns is None:
            return self._by_number.get(named.number)
        at = bisect_left(self._by_time, (named.stamp_ns,))
        near = [
            (abs(ns - named.stamp_ns), file) for ns, file in self._by_time[max(0, at - 1) :][:2]
        ]
        offset_ns, file = min(near, default=(0, None))
        return file if offset_ns <= self._config.max_offset_s * NS_PER_S else None

    def _read(self, file: Path, size: tuple[int, int]) -> NDArray[np.float32]:
        metres = depth_metres_of_png(file.read_bytes(), self._config.unit_m)
        if why := why_other_view((metres.shape[1], metres.shape[0]), size):
            raise ImageError(why)
        return metres

    def tell(self) -> None:
        """Say what was left out, if anything was."""
        if self._unpaired and self._by_stem:
            text = '%d images have no depth: none has their name, number, or a time within %g s'
            _LOG.warning(text, self._unpaired, self._config.max_offset_s)
        if self._lost:
            text = '%d depth images are left out; the first: %s'
            _LOG.warning(text, len(self._lost), self._lost[0])


def folder_images(
    stream: FolderStream, stamps: Sequence[int], depth: FolderDepth | None
) -> Iterator[StampedImage]:
    """The images of a stream, with their times and depth.

    Args:
        stream: The stream.
        stamps: When each was taken [ns].
        depth: Where depth comes from; None: none is used.

    Raises:
        SourceError: Too many images are damaged.
    """
    damage = Damage(f'folder {stream.folder}')
    stretch = Stretch()
    try:
        for image in done_ahead(
            partial(_read_image, named.file, index, stamp_ns, stretch, damage)
            for index, (named, stamp_ns) in enumerate(zip(stream.images, stamps, strict=True))
        ):
            if image:
                yield depth.with_depth(image, stream.images[image.index]) if depth else image
        damage.check_any_left()
    finally:
        damage.tell()
        if depth:
            depth.tell()


def _read_image(
    file: Path, index: int, stamp_ns: int, stretch: Stretch, damage: Damage
) -> StampedImage | None:
    """The image of a file; None: it is damaged.

    Raises:
        SourceError: Too many are.
    """
    try:
        data = file.read_bytes()
        if why := pointer_advice(data[:_START_BYTES]):
            msg = f'{file} cannot be read: {why}'
            raise SourceError(msg)
        image = decode_image(data, stretch, is_upright=True)
    except (OSError, ImageError) as error:
        damage.leave_out(file.name, error)
        return None
    damage.count()
    # A photo that was turned upright is not what its bytes are.
    is_plain = image_format(data) == 'jpeg' and b'Exif' not in data[:_START_BYTES]
    encoded = EncodedImage(data, 'jpeg') if is_plain else None
    return StampedImage(index, stamp_ns, image, encoded=encoded)
