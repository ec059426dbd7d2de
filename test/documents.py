# SPDX-License-Identifier: Apache-2.0
"""The commands of the documents, as a shell would run them one after the other."""

from __future__ import annotations

import argparse
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
import re
import shlex
from typing import Any, TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / 'README.md',
    ROOT / 'CONTRIBUTING.md',
    ROOT / 'training/README.md',
    *sorted((ROOT / 'docs').rglob('*.md')),
    *sorted((ROOT / 'models').rglob('*.md')),
    ROOT / 'samples/README.md',
]
CONFIGS = sorted((ROOT / 'training/configs').rglob('*.yaml'))
# Options that name what a command writes.
_OUTPUTS = {'--out', '--output_dir', '--json', '--html', '--picture', '--save', '--export'}
_MADE_BY_MAKE = {'demo': 'out/demo', 'circle': 'out/circle'}
_FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir()} - {'embodied_r_msgs'}
_PROMPT = re.compile(r'^[\w-]+\$ +')
_COMMENT = re.compile(r'(?:^|\s)#\s.*$')
_LOOP = re.compile(r'for (?P<name>\w+) in (?P<values>.+?); do (?P<body>.+?);? *done')
_ASSIGNMENT = re.compile(r'(\w+)=(?:"([^"]*)"|(\S*))')
_INLINE = re.compile(r'`((?:\.venv/bin/)?(?:python3? -m|embodied-r|make) [^`]+)`')


@dataclass(frozen=True)
class DocumentCommand:
    """A command of a page, with its variables filled in."""

    page: str
    words: tuple[str, ...]
    is_whole: bool = True  # False: it is named within a sentence
    written: tuple[str, ...] = ()  # files that the shell itself writes

    def __str__(self) -> str:
        return ' '.join(self.words)

    @property
    def module(self) -> str:
        """What `python -m` runs; empty: it is another command."""
        is_python = Path(self.words[0]).name in {'python', 'python3'} and '-m' in self.words[:2]
        if is_python:
            return self.words[2]
        launcher = Path(self.words[0]).name in {'accelerate', 'torchrun'}
        return self.words[self.words.index('-m') + 1] if launcher and '-m' in self.words else ''

    @property
    def arguments(self) -> list[str]:
        """What stands behind the module."""
        return list(self.words[self.words.index('-m') + 2 :])

    @property
    def verb(self) -> list[str]:
        """What stands behind `embodied-r`; empty: it is another command."""
        names = [Path(word).name for word in self.words]
        if names[0] == 'embodied-r':
            return list(self.words[1:])
        if self.words[:4] == ('ros2', 'run', 'embodied_r_ros', 'embodied-r'):
            return list(self.words[4:])
        return []


@dataclass
class _Shell:
    page: str
    variables: dict[str, str] = field(default_factory=dict)

    def run(self, text: str) -> Iterator[DocumentCommand]:
        """The commands of a line, one loop or several statements."""
        if loop := _LOOP.fullmatch(text.strip()):
            for value in shlex.split(self._filled(loop['values'])):
                self.variables[loop['name']] = value
                yield from self.run(loop['body'])
            return
        for statement in re.split(r';\s*|\s*&&\s*', text):
            words = [word for part in [self._filled(statement)] for word in shlex.split(part)]
            if words[:2] == ['set', '--']:
                self.variables |= {str(n): word for n, word in enumerate(words[2:], 1)}
            elif not _ASSIGNMENT.sub('', statement.removeprefix('export ')).strip():
                found = _ASSIGNMENT.findall(statement)
                for name, quoted, plain in found:
                    self.variables[name] = self._filled(quoted or plain)
            else:
                yield self._command(words)

    def _command(self, words: list[str]) -> DocumentCommand:
        while _ASSIGNMENT.fullmatch(words[0]):  # of its environment
            words = words[1:]
        written = [words[i + 1] for i, word in enumerate(words[:-1]) if word == '>']
        ends = [words.index(sign) for sign in ('|', '>', '<') if sign in words]
        if words[:2] == ['git', 'archive']:  # whose names another program unpacks
            folder = words[words.index('-C') + 1]
            depth = int(words[-1].rpartition('=')[2])
            names = [name for word in words[3 : words.index('|')] for name in expand_braces(word)]
            written = [str(Path(folder, *Path(name).parts[depth:])) for name in names]
        bare = [name for word in words[: min(ends, default=None)] for name in expand_braces(word)]
        return DocumentCommand(self.page, tuple(bare), written=tuple(written))

    def _filled(self, text: str) -> str:
        return re.sub(r'\$(\w+)', lambda name: self.variables.get(name[1], name[0]), text)


def expand_braces(word: str) -> list[str]:
    """A word with braces as the words that a shell makes of it."""
    parts = re.fullmatch(r'(.*)\{([\w-]+(?:,[\w-]+)+)\}(.*)', word)
    return [f'{parts[1]}{one}{parts[3]}' for one in parts[2].split(',')] if parts else [word]


def commands_of(page: Path) -> list[DocumentCommand]:
    """The commands in the blocks of a page, in their order, and those within its sentences."""
    text = page.read_text()
    name = str(page.relative_to(ROOT))
    shell = _Shell(name)
    commands: list[DocumentCommand] = []
    for block in re.findall(r'^```sh\n(.*?)^```', text, re.MULTILINE | re.DOTALL):
        block = re.sub(r'\s*\\\n\s*', ' ', block)
        block = '\n'.join(_COMMENT.sub('', _PROMPT.sub('', line)) for line in block.splitlines())
        block = re.sub(r'; do\n\s*(.*?)\n\s*done', _on_one_line, block, flags=re.DOTALL)
        for line in filter(str.strip, block.splitlines()):
            commands += shell.run(line)
    prose = re.sub(r'^```.*?^```', '', text, flags=re.MULTILINE | re.DOTALL)
    for found in _INLINE.findall(prose):
        words = shlex.split(found.replace('…', ''))
        commands.append(DocumentCommand(name, tuple(words), is_whole=False))
    return commands


def _on_one_line(loop: re.Match[str]) -> str:
    body = '; '.join(line.strip() for line in loop[1].splitlines())
    return f'; do {body}; done'


def commands_of_config(config: Path) -> list[DocumentCommand]:
    """The commands in the head of a configuration file."""
    shell = _Shell(str(config.relative_to(ROOT)))
    lines = [line[4:] for line in config.read_text().splitlines() if line[:4] == '#   ']
    # A line that is indented further goes on with the one before.
    text = re.sub(r'\s*\\?\n\s+', ' ', '\n'.join(lines))
    starts = re.compile(r'(?:\.venv/bin/|gpu/bin/|git |python |embodied-r |for |\w+=|\$\w+ )')
    return [c for line in text.splitlines() if starts.match(line) for c in shell.run(line)]


def settings_of(command: DocumentCommand) -> dict[str, Any]:
    """What the `--config` of a command says; empty: it has none."""
    words = list(command.words)
    file = ROOT / words[words.index('--config') + 1] if '--config' in words else None
    return _settings_in(file) if file and file.is_file() else {}


@cache
def _settings_in(file: Path) -> dict[str, Any]:
    return yaml.safe_load(file.read_text()) or {}


def outputs_of(command: DocumentCommand) -> set[str]:
    """Files and folders that a command writes."""
    words = command.words
    settings = {k: v for k, v in settings_of(command).items() if f'--{k}' not in words}
    written = {words[i + 1] for i, word in enumerate(words[:-1]) if word in _OUTPUTS}
    if words[0] == 'make':
        written.add(_MADE_BY_MAKE.get(words[1], ''))
    given = {settings.get(name, '') for name in ('output_dir', 'out')}
    return (written | set(command.written) | given) - {''}


def inputs_of(command: DocumentCommand) -> set[str]:
    """Files and folders of the repository, or of runs, that a command and its `--config` name."""
    given = {word.lstrip('-') for word in command.words if word.startswith('--')}
    settings = {k: v for k, v in settings_of(command).items() if k not in given}
    reads = command.words[0] not in {'git', 'mkdir'}
    words = {*command.words[1:], *_texts(settings)} if reads else set()
    paths = {word for word in words if re.fullmatch(r'[\w.-]+(?:/[\w.-]+)+', word)}
    ours = {path for path in paths if path.partition('/')[0] in _FOLDERS | {'runs', 'out'}}
    return ours - outputs_of(command)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def is_there(path: str, made: Iterable[str]) -> bool:
    """Tell whether a path is in the repository, or one that commands have made leads to it."""
    if not path.startswith(('runs/', 'out/')) and (ROOT / path).exists():
        return True
    return any(f'{path}/'.startswith(f'{one}/') or one.startswith(f'{path}/') for one in made)


class ParsedError(Exception):
    """A parser has read a command line; with the words that it does not know."""


@contextmanager
def parsing_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands end with ParsedError as soon as their parser has read the command line."""
    parse = argparse.ArgumentParser.parse_known_args

    def parse_and_end(self: Any, args: Any = None, namespace: Any = None) -> Any:
        raise ParsedError(parse(self, args, namespace)[1])

    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, 'parse_known_args', parse_and_end)
        yield
