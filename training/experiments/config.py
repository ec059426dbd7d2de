# SPDX-License-Identifier: Apache-2.0
"""What an experiment is: one YAML file, checked before anything runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError, InputError
from embodied_r_ros.common.settings import config_from_mapping, read_yaml, setting, Settings
from embodied_r_ros.scene.memory import MemoryConfig
from embodied_r_ros.types.answers import Sampling

from training.evaluate import CACHE

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class TrainingConfig(Settings):
    """A training run that an experiment needs; skipped where its model is there already."""

    recipe: str = setting('grpo', 'what trains', choices=('grpo', 'sft'))
    config: str = setting('', 'YAML file of the run')
    output: str = setting('', 'folder for its model')
    settings: dict[str, Any] = field(default_factory=dict)  # in place of those in the file

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ('config', 'output'):
            if not getattr(self, name):
                msg = f'a training run lacks {name!r}'
                raise ConfigError(msg)


@dataclass(frozen=True)
class ExperimentConfig(Settings):
    """Models on files of rows: which is better, and are their reasonings sound?"""

    title: str = setting('', 'heading of the page; empty: the name of the file')
    out: str = setting('', 'folder for the results; empty: runs/experiments and that name')
    limit: int = setting(0, 'questions, drawn by the seed; 0: all', between=(0, 10**9))
    seed: int = setting(0, 'of everything that is drawn', between=(0, 2**31 - 1))
    token_budget: int = setting(
        MemoryConfig.token_budget, 'tokens of the scene in a prompt', between=(200, 100_000)
    )
    max_tokens: int = setting(Sampling.max_tokens, 'tokens of a completion', between=(1, 100_000))
    cache: str = setting(CACHE, 'folder of what was said and seen before; none: nothing is kept')
    models: dict[str, str] = field(default_factory=dict)  # name: folder or URL; first: compared to
    rows: dict[str, str] = field(default_factory=dict)  # name: file
    seeds: dict[str, tuple[str, ...]] = field(default_factory=dict)  # recipe: its models
    images: dict[str, str] = field(default_factory=dict)  # model: folder; shown, not told
    train: tuple[TrainingConfig, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ('models', 'rows'):
            if not getattr(self, name):
                msg = f'{name} is empty: name one or more'
                raise ConfigError(msg)
        for recipe, names in self.seeds.items():
            if not names:
                msg = f'seeds.{recipe} is empty: name one model or more'
                raise ConfigError(msg)
            self._check_models(f'seeds.{recipe}', names)
        self._check_models('images', tuple(self.images))

    def memory(self) -> MemoryConfig:
        """How much of what was seen a prompt holds."""
        return MemoryConfig(token_budget=self.token_budget)

    def sampling(self) -> Sampling:
        """How models are asked: greedily."""
        return Sampling(0.0, 1.0, self.max_tokens, self.seed)

    def _check_models(self, name: str, models: tuple[str, ...]) -> None:
        for model in models:
            if model not in self.models:
                msg = f'{name} names {model!r}: expected one of {", ".join(self.models)}'
                raise ConfigError(msg)


def read_experiment(path: Path) -> ExperimentConfig:
    """Read the YAML file of an experiment.

    Raises:
        InputError: It cannot be read, or something in it is not allowed; names the file.
    """
    values = read_yaml(path)
    try:
        config = _experiment(values)
    except InputError as error:
        msg = f'{path}: {error}'
        raise InputError(msg) from None
    out = config.out or f'runs/experiments/{path.stem}'
    return replace(config, title=config.title or path.stem, out=out)


def _experiment(values: Any) -> ExperimentConfig:
    if not isinstance(values, dict):
        msg = f'it holds {type(values).__name__}, expected settings'
        raise ConfigError(msg)
    return config_from_mapping(ExperimentConfig, {k: _filled(k, v) for k, v in values.items()})


def _filled(name: str, value: Any) -> Any:
    """A value of the YAML file as its setting wants it."""
    if name == 'train':
        _expect(name, value, list, 'a list of training runs')
        return tuple(_nested(TrainingConfig, name, item) for item in value)
    if name in {'models', 'rows', 'seeds', 'images'}:
        _expect(name, value, dict, 'names with values')
        # YAML takes a bare `true` for a truth value.
        named = {'true' if key is True else str(key): item for key, item in value.items()}
        return {key: _filled_item(name, key, item) for key, item in named.items()}
    return value


def _filled_item(name: str, key: str, value: Any) -> Any:
    if name == 'seeds':
        texts = [value] if isinstance(value, str) else value
        for item in texts if isinstance(texts, list) else [texts]:
            _expect(f'{name}.{key}', item, str, 'a name, or a list of them')
        return tuple(texts)
    _expect(f'{name}.{key}', value, str, 'a path or URL')
    return value


def _nested(kind: type[Any], name: str, value: Any) -> Any:
    _expect(name, value, dict, 'settings')
    return config_from_mapping(kind, value)


def _expect(name: str, value: Any, wanted: type, words: str) -> None:
    if not isinstance(value, wanted):
        msg = f'{name} is {value!r}: expected {words}'
        raise ConfigError(msg)
