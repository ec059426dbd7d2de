# SPDX-License-Identifier: Apache-2.0
"""The page as text: with the address of its server, or whole, in one file without a server."""

from __future__ import annotations

from base64 import b64encode
import json
from pathlib import Path
from typing import Any, TYPE_CHECKING

from embodied_r_ros.apps.review.film import keyframe_pictures
from embodied_r_ros.apps.review.library import FILTERS
from embodied_r_ros.common.files import write_whole

if TYPE_CHECKING:
    from embodied_r_ros.apps.review.pages import ReviewService

_FOLDER = Path(__file__).resolve().parent
_MOST_PICTURES = 240  # of keyframes, in a page of one file
_MOST_WAIT_S = 600.0


def read_part(name: str) -> str:
    """A file of the page."""
    return (_FOLDER / name).read_text(encoding='utf-8')


def page_text(about: dict[str, Any]) -> str:
    """The page.

    Args:
        about: What it is told at its start: `title`; of a page with a server `who`, and whether
            it `can_ask`; of one without, `saved` (`save_page`).
    """
    # As JSON in a script that is never run, where no text can end it.
    value = json.dumps({**about, 'filters': FILTERS})
    for char in '<>&':
        value = value.replace(char, f'\\u{ord(char):04x}')
    return read_part('page.html').replace('{}</script>', f'{value}</script>')


def save_page(path: Path, service: ReviewService, key: str, title: str) -> None:
    """Write the page of a recording as one file, with the pictures of its keyframes alone.

    Args:
        path: The file.
        service: What knows the recording.
        key: Of the recording.
        title: Of the page.

    Raises:
        InputError: The recording cannot be read, or the file cannot be written.
    """
    opened = service.library.open(key)
    opened.film.wait(_MOST_WAIT_S)
    shown, begin_ns = service.recording({'e': key}), opened.recording.begin_ns
    cameras: dict[str, list[float]] = {}
    pictures: dict[str, list[str]] = {}
    for camera, stamp_ns, data in keyframe_pictures(service.library.bag(key), _MOST_PICTURES):
        cameras.setdefault(camera, []).append((stamp_ns - begin_ns) / 1e9)
        coded = b64encode(data).decode()
        pictures.setdefault(camera, []).append(f'data:image/jpeg;base64,{coded}')
    shown['film'] |= {'cameras': cameras, 'is_whole': True, 'problem': ''}
    about = {'title': title, 'who': '', 'can_ask': False}
    text = page_text({**about, 'saved': {'recording': shown, 'pictures': pictures}})
    script = read_part('review.js')
    text = text.replace(
        '<link rel="stylesheet" href="/static/review.css">',
        f'<style>{read_part("review.css")}</style>',
    )
    text = text.replace('<script src="/static/review.js" defer></script>', '')
    text = text.replace('<link rel="icon" href="/static/icon.svg" type="image/svg+xml">', '')
    write_whole(path, text.replace('</body>', f'<script>{script}</script>\n</body>'))
