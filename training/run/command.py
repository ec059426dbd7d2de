# SPDX-License-Identifier: Apache-2.0
"""What every command shares: how it is read, and one clear line where it fails."""

from __future__ import annotations

from contextlib import contextmanager
import fcntl
from pathlib import Path
import shlex
import subprocess
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.common.processes import tie_command
from yaml import YAMLError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence


def say(line: str) -> None:
    """Tell people how it goes on, beside what a command is asked for."""
    sys.stderr.write(line + '\n')


def run_command(
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], int],
    arguments: Sequence[str] | None,
) -> int:
    """Read a command line, and run what it asks for.

    Args:
        parser: Of the command, whose `prog` names it in messages.
        run: Takes what was read and returns the exit code.
        arguments: The command line; None: that of the process.

    Returns:
        The exit code: that of `run`, 2 for bad input, 1 for any other failure that the project
        knows.
    """
    args = parser.parse_args(arguments)
    return _ended(parser.prog, lambda: run(args))


def _ended(name: str, run: Callable[[], int]) -> int:
    try:
        return run()
    except EmbodiedRError as error:
        sys.stderr.write(f'{name}: error: {error}\n')
        return 2 if isinstance(error, InputError) else 1
    except OSError as error:  # such as a disk that is full
        sys.stderr.write(f'{name}: failed: {" ".join(str(error).split())}\n')
        return 1


def run_step(*words: object, well: Sequence[int] = (0,)) -> int:
    """Run a command of the project, as if typed here, in a process that ends with this one.

    Args:
        words: `embodied-r` or a module such as `training.sft`, and its words.
        well: Exit codes that are no failure.

    Raises:
        EmbodiedRError: It ends with another code.
    """
    texts = [str(word) for word in words]
    sys.stderr.write(f'$ {shlex.join(texts)}\n')
    sys.stderr.flush()
    module = 'embodied_r_ros.cli.main' if texts[0] == 'embodied-r' else texts[0]
    command = tie_command([sys.executable, '-m', module, *texts[1:]])
    code = subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
    if code not in well:
        msg = f'{texts[0]} ended with code {code}: what it said stands above'
        raise EmbodiedRError(msg)
    return code


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
    from trl import TrlParser  # slow to import: only what trains waits for it

    try:
        values = TrlParser(arguments).parse_args_and_config()
    except (OSError, ValueError, YAMLError) as error:  # no such file, or setting, or value
        sys.stderr.write(f'{name}: error: {" ".join(str(error).split())}\n')
        return 2

    def run() -> int:
        with _alone(values[-1]), weights_in(Path(values[-1].output_dir)):
            train(*values)
        return 0

    return _ended(name, run)


@contextmanager
def weights_in(folder: Path) -> Iterator[None]:
    """Turn what libraries raise where a disk is full into a line that names the folder.

    Raises:
        InputError: Weights cannot be read or written.
    """
    from safetensors import SafetensorError

    try:
        yield
    except (RuntimeError, SafetensorError) as error:
        is_of_torch = isinstance(error, RuntimeError)
        if isinstance(error, EmbodiedRError) or (is_of_torch and _TORCH_WRITES not in str(error)):
            raise
        msg = f'cannot read or write weights in {folder}: {" ".join(str(error).split())}'
        raise InputError(msg) from None


_TORCH_WRITES = 'PytorchStreamWriter'


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
