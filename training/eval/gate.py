# SPDX-License-Identifier: Apache-2.0
"""The gate before a robot: what a candidate must show against the model that serves now."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.chat.client import HttpChatClient
from embodied_r_ros.chat.protocol import ChatRequest
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.serving.servers import served_model
import numpy as np

from training.eval.report_page import gain_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from embodied_r_ros.reasoning.prompts import Prompt
    from embodied_r_ros.types.answers import Sampling

_DEADLINE_S = 600.0


@dataclass(frozen=True)
class Latency:
    """Time from a question to its whole answer."""

    p50_s: float
    p95_s: float
    n: int


def measure(
    models: tuple[str, str],
    prompts: Sequence[Prompt],
    sampling: Sampling,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[Latency, Latency]:
    """Time whole answers of two models, each served as `embodied-r ask` serves it.

    They are asked in turns, so that whatever else the machine does is shared by both.

    Raises:
        ConfigError: A model is neither a URL nor a folder that can be served.
        ModelError: A server does not start, or fails.
    """
    with ExitStack() as stack:
        clients = [HttpChatClient(stack.enter_context(served_model(m, say))) for m in models]
        for client in clients:  # the first answer of a server takes longer
            _time(client, prompts[0], sampling)
        times = [[_time(client, prompt, sampling) for client in clients] for prompt in prompts]
    first, second = np.transpose(times)
    return _answer_times(first), _answer_times(second)


def _time(client: HttpChatClient, prompt: Prompt, sampling: Sampling) -> float:
    start = time.monotonic()
    for _ in client.stream(ChatRequest(prompt.messages(), sampling), _DEADLINE_S):
        pass
    return time.monotonic() - start


def _answer_times(times: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Latency:
    middle, high = np.quantile(times, [0.5, 0.95])
    return Latency(float(middle), float(high), len(times))


_MAX_P = 0.05  # of a gain that is none, by flipping whole scenes


@dataclass(frozen=True)
class PromotionGateConfig(Settings):
    """What is asked of a candidate. Rates and differences of rates are 0..1."""

    min_gain: float = setting(
        0.0,
        'lower end of the 95 %% interval of the gain in accuracy is above it; -0.02: at most so '
        'much worse',
        between=(-1, 1),
    )
    min_format: float = setting(0.98, 'share of completions in the format', between=(0, 1))
    min_consistency: float = setting(
        0.9, 'share of answers that follow from their reasoning', between=(0, 1)
    )
    max_unknown_loss: float = setting(
        0.05, 'how much lower precision and recall of `unknown` may be', between=(0, 1)
    )
    max_latency_ratio: float = setting(
        1.5, "median and 95th percentile of the time per answer, to the incumbent's",
        between=(0, 1000),
    )  # fmt: skip


@dataclass(frozen=True)
class GateCheck:
    """One figure, and whether it is good enough."""

    name: str
    passed: bool
    figure: str  # what was found, in words
    wanted: str  # what was asked for


def gate(
    comparison: Mapping[str, Any],
    latency: tuple[Latency, Latency] | None,
    config: PromotionGateConfig,
    *,
    judged: bool,
) -> list[GateCheck]:
    """Check a candidate.

    Args:
        comparison: Of the incumbent (first) and the candidate (second), from `compare`.
        latency: Of both, likewise; None: nobody wants to know.
        config: What is asked.
        judged: Whether consistency is to be known; if so, a candidate without it does not pass.
    """
    candidate = comparison['second']
    # Of one scene there is no interval, and nothing is proven.
    low = comparison['interval_95'][0] if comparison['interval_95'] else -1.0
    # No worse is at least; better is more: who answers as the incumbent does has gained nothing.
    # The interval of few scenes is too narrow; the paired test knows: of
    # five no result is unlikely enough.
    better = config.min_gain >= 0
    unlikely = comparison['p_value'] < _MAX_P
    proven = low > config.min_gain and unlikely if better else low >= config.min_gain
    wanted = f'{config.min_gain:+.1%} with 95 % confidence'
    checks = [
        GateCheck(
            'gain',
            proven,
            f'{gain_text(comparison)}, p = {comparison["p_value"]:.2g}',
            f'more than {wanted}, p < {_MAX_P}' if better else f'at least {wanted}',
        ),
        _at_least('format', candidate['format'], config.min_format),
        *(_unknown(name, comparison, config) for name in ('precision', 'recall')),
        _consistency(candidate['consistency'], config, judged=judged),
    ]
    return [*checks, *(_latency(latency, config) if latency else ())]


def _at_least(name: str, value: float, least: float) -> GateCheck:
    return GateCheck(name, value >= least, f'{value:.1%}', f'at least {least:.1%}')


def _unknown(name: str, comparison: Mapping[str, Any], config: PromotionGateConfig) -> GateCheck:
    first, second = (comparison[side]['unknown'][name] for side in ('first', 'second'))
    name = f'unknown: {name}'
    if first is None:
        return GateCheck(name, True, 'not defined for the incumbent', 'nothing')
    wanted = first - config.max_unknown_loss
    if second is None:  # as bad as none right, which only a gate lets pass that allows any loss
        return GateCheck(name, wanted <= 0, 'not defined: never said', f'at least {wanted:.1%}')
    return _at_least(name, second, wanted)


def _consistency(value: float | None, config: PromotionGateConfig, *, judged: bool) -> GateCheck:
    if value is None:
        wanted = f'at least {config.min_consistency:.1%}' if judged else 'nothing: --judge none'
        return GateCheck('consistency', not judged, 'not judged', wanted)
    return _at_least('consistency', value, config.min_consistency)


def _latency(latency: tuple[Latency, Latency], config: PromotionGateConfig) -> list[GateCheck]:
    checks = []
    for name in ('p50_s', 'p95_s'):
        first, second = (getattr(each, name) for each in latency)
        ratio = second / first
        checks.append(
            GateCheck(
                f'latency {name.removesuffix("_s")}',
                ratio <= config.max_latency_ratio,
                f'{second:.2f} s, {ratio:.2f} of {first:.2f} s',
                f'at most {config.max_latency_ratio:.2f} of the incumbent',
            )
        )
    return checks


def table(checks: list[GateCheck]) -> str:
    """The checks as text."""
    return '\n'.join(
        f'{"ok" if check.passed else "REFUSED":<8} {check.name:<20} {check.figure} '
        f'(wanted: {check.wanted})'
        for check in checks
    )
