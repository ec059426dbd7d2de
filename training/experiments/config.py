# SPDX-License-Identifier: Apache-2.0
"""What an experiment is: one YAML file, checked before anything runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError, InputError
from embodied_r_ros.common.settings import config_from_mapping, read_yaml, setting, Settings
from embodied_r_ros.keyframes.selector import KeyframeConfig
from embodied_r_ros.scene.memory import MemoryConfig
from embodied_r_ros.types.answers import Sampling

from training.evaluate import CACHE

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class ExperimentConfig(Settings):
    """What every experiment has."""

    title: str = setting('', 'heading of the page; empty: the name of the file')
    out: str = setting('', 'folder for the results; empty: runs/experiments and that name')
    limit: int = setting(0, 'questions, drawn by the seed; 0: all', between=(0, 10**9))
    seed: int = setting(0, 'of everything that is drawn', between=(0, 2**31 - 1))
    token_budget: int = setting(
        MemoryConfig.token_budget, 'tokens of the scene in a prompt', between=(200, 100_000)
    )
    max_tokens: int = setting(Sampling.max_tokens, 'tokens of a completion', between=(1, 100_000))
    cache: str = setting(CACHE, 'folder of what was said and seen before; none: nothing is kept')

    def memory(self) -> MemoryConfig:
        """How much of what was seen a prompt holds."""
        return MemoryConfig(token_budget=self.token_budget)

    def sampling(self, temperature: float = 0.0) -> Sampling:
        """How models are asked: greedily, unless a temperature is given."""
        return Sampling(temperature, 1.0, self.max_tokens, self.seed)


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
class ModelsConfig(ExperimentConfig):
    """Models on files of rows: which is better, and are their reasonings sound?"""

    models: dict[str, str] = field(default_factory=dict)  # name: folder or URL; first: compared to
    rows: dict[str, str] = field(default_factory=dict)  # name: file
    judges: dict[str, tuple[str, ...]] = field(default_factory=dict)  # name: several vote
    split: str = setting('', 'only rows of this split; empty: all')
    temperatures: tuple[float, ...] = (0.0,)  # of the models; 0: greedy
    seeds: dict[str, tuple[str, ...]] = field(default_factory=dict)  # recipe: its models
    blind: tuple[str, ...] = ()  # models that are asked without what was seen
    images: dict[str, str] = field(default_factory=dict)  # model: folder; shown, not told
    train: tuple[TrainingConfig, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_named(self, 'models', at_least=1)
        _check_named(self, 'rows', at_least=1)
        if not self.temperatures or not all(
            0 <= temperature <= 2 for temperature in self.temperatures
        ):
            msg = f'temperatures is {list(self.temperatures)}: expected one or more from 0 to 2'
            raise ConfigError(msg)
        for recipe, names in self.seeds.items():
            if not names:
                msg = f'seeds.{recipe} is empty: name one model or more'
                raise ConfigError(msg)
            self._check_models(f'seeds.{recipe}', names)
        self._check_models('blind', self.blind)
        self._check_models('images', tuple(self.images))

    def _check_models(self, name: str, models: tuple[str, ...]) -> None:
        for model in models:
            if model not in self.models:
                msg = f'{name} names {model!r}: expected one of {", ".join(self.models)}'
                raise ConfigError(msg)


@dataclass(frozen=True)
class PerceptionConfig(ExperimentConfig):
    """One model on the same questions, each told by several perceivers."""

    model: str = setting('models/nano', 'folder or URL')
    judge: tuple[str, ...] = setting(('none',), 'folders or URLs, several vote; none: no judge')
    rows: dict[str, str] = field(default_factory=dict)  # text: file; the first is the reference
    worlds: tuple[str, ...] = setting((), 'simulated bags or folders of them, instead of rows')
    episodes: int = setting(0, 'of the worlds, at most; 0: all', between=(0, 10**9))
    moments: int = setting(2, 'of an episode at which is asked', between=(1, 64))
    images_alone: bool = setting(False, 'the classical perceiver by images alone, too')
    profile: str = setting('', 'profile with a vision-language model to compare; empty: none')

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.rows) == bool(self.worlds):
            msg = 'give either worlds, or rows, and not both'
            raise ConfigError(msg)
        if self.rows:
            _check_named(self, 'rows', at_least=2)
        if self.rows and (self.profile or self.images_alone):
            msg = 'profile and images_alone perceive worlds: rows have been perceived already'
            raise ConfigError(msg)


@dataclass(frozen=True)
class PolicyConfig(Settings):
    """Which images of a recording are looked at, and how."""

    choose: str = setting(
        'keyframes', 'what chooses the images', choices=('keyframes', 'uniform', 'every')
    )
    count: int = setting(32, 'of `uniform`: images, evenly over time', between=(2, 10_000))
    rate_hz: float = setting(0.0, 'of `every`: so many a second; 0: all', between=(0, 1000))
    max_overlap: float = setting(
        KeyframeConfig.max_overlap, 'of `keyframes`: share of the view', between=(0, 1)
    )
    in_pairs: bool = setting(
        True, 'each image is compared with the one before; no: described alone, as a batch'
    )
    odometry: bool = setting(True, 'poses of the recording are used; no: images alone')


@dataclass(frozen=True)
class KeyframesConfig(ExperimentConfig):
    """One model on the same questions, of recordings of which different images were looked at."""

    model: str = setting('models/nano', 'folder or URL')
    judge: tuple[str, ...] = setting(('none',), 'folders or URLs, several vote; none: no judge')
    worlds: tuple[str, ...] = setting((), 'simulated bags or folders of them, with images')
    episodes: int = setting(0, 'of the worlds, at most; 0: all', between=(0, 10**9))
    draws: int = setting(3, 'times that each kind of question is drawn', between=(1, 64))
    profile: str = setting('', 'with a vision-language model; empty: the classical perceiver')
    policies: dict[str, PolicyConfig] = field(default_factory=dict)  # first: compared with

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_named(self, 'policies', at_least=1)
        if not self.worlds:
            msg = 'worlds is empty: name simulated bags, or folders of them'
            raise ConfigError(msg)


KINDS: dict[str, type[ExperimentConfig]] = {
    'models': ModelsConfig,
    'perception': PerceptionConfig,
    'keyframes': KeyframesConfig,
}


def _check_named(config: ExperimentConfig, name: str, *, at_least: int) -> None:
    if len(getattr(config, name)) < at_least:
        msg = f'{name} has {len(getattr(config, name))} entries: expected {at_least} or more'
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
    kind = values.pop('kind', None)
    if kind not in KINDS:
        msg = f'kind is {kind!r}: expected one of {", ".join(KINDS)}'
        raise ConfigError(msg)
    return config_from_mapping(KINDS[kind], {k: _filled(k, v) for k, v in values.items()})


def _filled(name: str, value: Any) -> Any:
    """A value of the YAML file as its setting wants it."""
    if name == 'train':
        _expect(name, value, list, 'a list of training runs')
        return tuple(_nested(TrainingConfig, name, item) for item in value)
    if name in {'judge', 'worlds', 'blind'}:
        return _texts(name, value)
    if name in {'models', 'rows', 'judges', 'policies', 'seeds', 'images'}:
        _expect(name, value, dict, 'names with values')
        # YAML takes a bare `true` for a truth value.
        named = {'true' if key is True else str(key): item for key, item in value.items()}
        return {key: _filled_item(name, key, item) for key, item in named.items()}
    return value


def _filled_item(name: str, key: str, value: Any) -> Any:
    if name == 'policies':
        return _nested(PolicyConfig, f'{name}.{key}', value)
    if name in {'judges', 'seeds'}:
        return _texts(f'{name}.{key}', value)
    _expect(f'{name}.{key}', value, str, 'a path or URL')
    return value


def _texts(name: str, value: Any) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    _expect(name, texts, list, 'a path or URL, or a list of them')
    for item in texts:
        _expect(name, item, str, 'a path or URL, or a list of them')
    return tuple(texts)


def _nested(kind: type[Any], name: str, value: Any) -> Any:
    _expect(name, value, dict, 'settings')
    return config_from_mapping(kind, value)


def _expect(name: str, value: Any, wanted: type, words: str) -> None:
    if not isinstance(value, wanted):
        msg = f'{name} is {value!r}: expected {words}'
        raise ConfigError(msg)
