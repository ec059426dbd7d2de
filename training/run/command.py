# SPDX-License-Identifier: Apache-2.0
"""What every command shares: how it is read, one clear line where it fails, whole files."""

from __future__ import annotations

from contextlib import contextmanager, suppress
import fcntl
from pathlib import Path
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import EmbodiedRError, InputError
from trl import TrlParser
from yaml import YAMLError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def write_text(path: Path, text: str) -> None:
    """Write a file under a temporary name, then rename it; what was there is replaced.

    Raises:
        InputError: It cannot be written.
    """
    unfinished = path.with_name(path.name + '.tmp')
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(text, encoding='utf-8')
        unfinished.replace(path)
    except OSError as error:
        msg = f'cannot write {path}: {error.strerror}'
        raise InputError(msg) from None
    finally:
        with suppress(OSError):  # where it could not be made, it cannot be removed
            unfinished.unlink(missing_ok=True)


_LOCK = '.training.lock'


def run_recipe(name: str, train: Callable[..., None], *arguments: type[Any]) -> int:
    """Train as the command line and the YAML file say.

    Args:
        name: Of the recipe's module, for messages.
        train: Takes one value of each of `arguments`.
        arguments: Dataclasses whose fields the command line and the YAML file fill, the last of
            them TRL's.

    Returns:
        The exit code: 0, 2 for bad input, 1 for any other failure that the project knows.
    """
    try:
        values = TrlParser(arguments).parse_args_and_config()
    except (OSError, ValueError, YAMLError) as error:  # no such file, or setting, or value
        sys.stderr.write(f'{name}: error: {" ".join(str(error).split())}\n')
        return 2
    try:
        with _alone(values[-1]):
            train(*values)
    except EmbodiedRError as error:
        sys.stderr.write(f'{name}: error: {error}\n')
        return 2 if isinstance(error, InputError) else 1
    return 0


@contextmanager
def _alone(config: Any) -> Iterator[None]:
    """Hold the output folder of a run: two would take each other's checkpoints for broken ones.

    Raises:
        InputError: Another process trains there, or nothing can be written there.
    """
    if not config.should_save:  # of several processes of one run, the first holds it
        yield
        return
    folder = Path(config.output_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / _LOCK).open('a')
    except OSError as error:
        msg = f'cannot write to {folder}: {error.strerror}'
        raise InputError(msg) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            msg = f'{folder} is being trained into by another process: name another output folder'
            raise InputError(msg) from None
        yield
