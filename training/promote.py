# SPDX-License-Identifier: Apache-2.0
"""From a trained model to the robot: `python -m training.promote CANDIDATE --rows FILE`.

A candidate that passes the gate is copied into a slot, and the servers that follow the
slot take it. One that does not leaves a refusal with the figures. `--rollback` takes the last
promotion back.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
import hashlib
import json
from pathlib import Path
import sys
import tempfile
import time
from typing import Any, TYPE_CHECKING, TypeVar

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import code_version, user_name, write_whole
from embodied_r_ros.common.settings import setting, setting_infos, Settings
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.chat.settings import is_gguf_model, is_reader, model_digest
from embodied_r_ros.core.types.answers import Sampling
from embodied_r_ros.serving.profiles import load_profile, READER, reasoner_config
from embodied_r_ros.serving.promotion import (
    in_force,
    promote,
    roll_back,
    Signature,
    slot_folder,
    weights_of,
)
from embodied_r_ros.serving.served import served_model
import numpy as np

from training.data.selection import rows_of_split
from training.eval.asking import add_cache_option, CACHE, draw_rows, opened_cache
from training.eval.comparison import compare
from training.eval.figures import gain_text
from training.eval.judging import add_judge_option, judge_of
from training.eval.readers import base_of
from training.eval.shadow import read_shadowed, shadow_report
from training.evaluate import evaluate
from training.run.command import run_command, say
from training.run.models import is_adapter, merge_adapter, model_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from embodied_r_ros.core.reasoning.prompts import Prompt
    from embodied_r_ros.data.questions.row import Row

from training.eval.shadow import ShadowedRecordings

_FEW_SCENES = 10
_FEW_RECORDINGS = 6

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
    for _ in client.stream(prompt.request(sampling), _DEADLINE_S):
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
    max_wrong_gain: float = setting(
        0.05, 'how much more of the answers other than `unknown` may be wrong', between=(0, 1)
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
    is_judged: bool,
) -> list[GateCheck]:
    """Check a candidate.

    Args:
        comparison: Of the incumbent (first) and the candidate (second), from `compare`.
        latency: Of both, likewise; None: nobody wants to know.
        config: What is asked.
        is_judged: Whether consistency is to be known; if so, a candidate without it does not pass.
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
        _consistency(candidate['consistency'], config, is_judged=is_judged),
        _wrong(comparison, config),
    ]
    if latency:
        times = [(each.p50_s, each.p95_s) for each in latency]
        checks += _slower('latency', config, *times)
    return checks


def _at_least(name: str, value: float, least: float, figure: str = '') -> GateCheck:
    return GateCheck(name, value >= least, figure or f'{value:.1%}', f'at least {least:.1%}')


def _at_most(name: str, value: float, most: float, figure: str = '') -> GateCheck:
    return GateCheck(name, value <= most, figure or f'{value:.1%}', f'at most {most:.1%}')


def _unknown(name: str, comparison: Mapping[str, Any], config: PromotionGateConfig) -> GateCheck:
    first, second = (comparison[side]['unknown'][name] for side in ('first', 'second'))
    name = f'unknown: {name}'
    if first is None:
        return GateCheck(name, True, 'not defined for the incumbent', 'nothing')
    wanted = first - config.max_unknown_loss
    if second is None:  # as bad as none right, which only a gate lets pass that allows any loss
        return GateCheck(name, wanted <= 0, 'not defined: never said', f'at least {wanted:.1%}')
    return _at_least(name, second, wanted)


def _wrong(comparison: Mapping[str, Any], config: PromotionGateConfig) -> GateCheck:
    sides = comparison['first'], comparison['second']
    first, second = (each['wrong'] / (each['answered'] or 1.0) for each in sides)
    return _at_most('wrong', second, first + config.max_wrong_gain)


def _consistency(
    value: float | None, config: PromotionGateConfig, *, is_judged: bool
) -> GateCheck:
    if value is None:
        wanted = f'at least {config.min_consistency:.1%}' if is_judged else 'nothing: --judge none'
        return GateCheck('consistency', not is_judged, 'not judged', wanted)
    return _at_least('consistency', value, config.min_consistency)


def _slower(
    what: str, config: PromotionGateConfig, first: Sequence[float], second: Sequence[float]
) -> list[GateCheck]:
    """Checks of median and 95th percentile [s] of the incumbent and the candidate."""
    limit = config.max_latency_ratio
    return [
        GateCheck(
            f'{what} {name}',
            after <= limit * before,
            f'{after:.2f} s, {before:.2f} s before',
            f'at most {limit:.2f} of the incumbent',
        )
        for name, before, after in zip(('p50', 'p95'), first, second, strict=True)
    ]


def table(checks: list[GateCheck]) -> str:
    """The checks as text."""
    return '\n'.join(
        f'{"ok" if check.passed else "REFUSED":<8} {check.name:<20} {check.figure} '
        f'(wanted: {check.wanted})'
        for check in checks
    )


@dataclass(frozen=True)
class ShadowGateConfig(Settings):
    """What the shadow must show of a candidate, beside what the rows show. Rates are 0..1."""

    shadow_min_gain: float = setting(
        -0.1, 'lower end of the 95 %% interval of the difference in accuracy', between=(-1, 1)
    )
    shadow_min_questions: int = setting(
        30, 'questions whose answer is labelled or proven', between=(1, 1_000_000)
    )
    shadow_max_dropped: float = setting(
        0.5, 'share of the questions that the candidate did not come to', between=(0, 1)
    )


def shadow_checks(
    report: dict[str, Any], config: ShadowGateConfig, rates: PromotionGateConfig
) -> list[GateCheck]:
    """What the shadow adds to the gate.

    Args:
        report: Of `shadow_report`.
        config: What is asked of the shadow.
        rates: What is asked of the rows: share of readable answers, unknowns and latency likewise.
    """
    asked = report['questions'] - report['dropped']
    readable = report['answered'] / max(asked, 1)
    dropped = report['dropped'] / max(report['questions'], 1)
    low = report['interval_95'][0] if report['interval_95'] else -1.0
    unknown_before, unknown = report['unknown']
    limit = unknown_before + rates.max_unknown_loss
    sources = ', '.join(f'{n} by {source}' for source, n in report['by_source'].items()) or 'none'
    checks = [
        GateCheck(
            'shadow: questions',
            report['solved'] >= config.shadow_min_questions,
            f'{report["solved"]} with a known answer ({sources})',
            f'at least {config.shadow_min_questions}',
        ),
        GateCheck(
            'shadow: gain',
            low >= config.shadow_min_gain,
            f'{gain_text(report, "recording")}, {report["first_accuracy"]:.1%} before',
            f'at least {config.shadow_min_gain:+.1%} with 95 % confidence',
        ),
        _at_least('shadow: answered', readable, rates.min_format, f'{readable:.1%} of {asked}'),
        _at_most('shadow: unknown', unknown, limit, f'{unknown:.1%}, {unknown_before:.1%} before'),
        _at_most(
            'shadow: dropped',
            dropped,
            config.shadow_max_dropped,
            f'{dropped:.1%} of {report["questions"]}',
        ),
    ]
    for what in ('latency', 'generation'):
        checks += _slower(f'shadow: {what}', rates, *report[f'{what}_s'])
    return checks


def few_recordings(report: dict[str, Any]) -> str:
    """A warning where there are too few recordings for an interval to be trusted; else empty."""
    count = len(report['recordings'])
    if count >= _FEW_RECORDINGS:
        return ''
    return f'the shadow stood in {count} recordings only: their interval is too narrow'


Gate = TypeVar('Gate', PromotionGateConfig, ShadowGateConfig)


def examine_candidate(
    incumbent: Path,
    candidate: Path,
    served: Path,
    rows: Sequence[Row],
    shadowed: ShadowedRecordings | None,
    args: argparse.Namespace,
) -> tuple[dict[str, Any], bool]:
    """What the gate found of a candidate, for its manifest or refusal, and whether it passed.

    Args:
        incumbent: Folder of the model or adapter that serves now, or its file in GGUF.
        candidate: Likewise of the one that may.
        served: Folder of the incumbent as whole weights, where answers are timed.
        rows: What both are asked.
        shadowed: Recordings in which the candidate stood in the shadow; None: nobody wants to
            know.
        args: Of the command line.

    Raises:
        ModelError: A model cannot be loaded or served.
        InputError: The candidate was not in the shadow of the incumbent.
    """
    # The gate asks as the robot will.
    reasoner = reasoner_config(profile=args.profile, token_budget=args.token_budget or None)
    memory = reasoner.memory()
    sampling = Sampling(reasoner.temperature, reasoner.top_p, reasoner.max_tokens, reasoner.seed)
    cache, judge = opened_cache(args.cache), judge_of(args.judge)
    shadow = None
    if shadowed:
        digests = model_digest(incumbent), model_digest(candidate)
        shadow = shadow_report(shadowed, *digests, judge)
    reports = [
        evaluate(str(folder), rows, memory, sampling, cache, judge, args.profile)
        for folder in (incumbent, candidate)
    ]
    for name, each in zip(('serving', 'candidate'), reports, strict=True):
        figures = f'right {each["accuracy"]:.1%}, wrong {each["wrong"]:.1%}, answered '
        figures += f'{each["answered"]:.1%}'
        say(f'{name:<9} {figures} of {each["n"]} questions about {len(each["by_scene"])} scenes')
    comparison = compare(*reports)
    latency = None
    is_adapter_of_reader = is_reader(str(candidate))
    if args.latency_rows and not is_adapter_of_reader:  # one costs what another does
        timed = draw_rows(list(rows), args.latency_rows, args.seed)
        prompts = [row.prompt(memory) for row in timed]
        latency = measure((str(served), str(candidate)), prompts, sampling, say)
    config, of_shadow = _settings(PromotionGateConfig, args), _settings(ShadowGateConfig, args)
    checks = gate(comparison, latency, config, is_judged=judge is not None)
    if shadow:
        if problem := few_recordings(shadow):
            say(problem)
        checks += shadow_checks(shadow, of_shadow, config)
    sys.stdout.write(table(checks) + '\n')
    text = '\n'.join(row.to_json() for row in rows)
    record = {
        'date': _signature(args).date,
        'signed_off_by': args.by or user_name(),
        'code': code_version(),
        'rows': {
            'file': str(args.rows),
            'split': args.split,
            'sha256': hashlib.sha256(text.encode()).hexdigest(),
        },
        **(
            {'base': {'digest': model_digest(base_of(args.profile))}}
            if is_adapter_of_reader
            else {}
        ),
        'token_budget': reasoner.token_budget,
        'max_tokens': reasoner.max_tokens,
        'gate': asdict(config),
        'checks': [asdict(check) for check in checks],
        'latency': [asdict(each) for each in latency] if latency else None,
        'comparison': comparison,
        **({'shadow': {**shadow, 'gate': asdict(of_shadow)}} if shadow else {}),
    }
    return record, all(check.passed for check in checks)


def decide(args: argparse.Namespace, slot: Path) -> int:
    """Promote the candidate, or refuse it; returns the exit code.

    Raises:
        InputError: There are no rows, the candidate is no model, or it serves already; or it was
            not in the shadow.
    """
    rows = draw_rows(rows_of_split(args.rows, args.split), args.limit, args.seed)
    if (scenes := len({row.scene_id for row in rows})) < _FEW_SCENES:
        say(f'the rows are of {scenes} scenes only: what holds elsewhere, few can tell')
    shadowed = read_shadowed(args.after_shadow, say) if args.after_shadow else None
    incumbent = _weights(args.against) if args.against else serving_model(args.profile, slot)
    with tempfile.TemporaryDirectory() as folder:
        candidate = _weights(args.candidate)
        _check_kind(args.profile, candidate)
        if is_adapter(candidate) and not args.as_adapter:
            candidate = merge_adapter(candidate, Path(folder) / 'candidate' / candidate.name)
        digest = model_digest(candidate)
        if digest == model_digest(incumbent):
            msg = f'{args.candidate} is the incumbent itself ({digest}): train another one'
            raise InputError(msg)
        served = incumbent
        if is_adapter(incumbent) and args.latency_rows:  # an adapter alone cannot be timed
            say(f'{incumbent} is an adapter: it is timed merged into its model')
            served = merge_adapter(incumbent, Path(folder) / 'incumbent')
        record, passed = examine_candidate(incumbent, candidate, served, rows, shadowed, args)
        if args.no_promote:
            say(f'the gate would have {"promoted" if passed else "refused"} it')
            return 0
        if passed:
            promoted = promote(slot, candidate, record, _signature(args))
            say(f'promoted: {promoted.folder} ({slot}/manifest.json)')
            return 0
    refusal = slot / 'refusals' / f'{digest.removeprefix("sha256:")[:12]}.json'
    text = json.dumps({'candidate': args.candidate, 'digest': digest, **record}, indent=2)
    write_whole(refusal, text + '\n', makes_folder=True)
    say(f'refused: {refusal}')
    return 1


def _weights(model: str) -> Path:
    """The adapter in GGUF that a path names or holds, else the folder of a model or an adapter.

    Raises:
        InputError: It is neither.
    """
    own = weights_of(Path(model).expanduser())
    return own if is_reader(str(own)) else model_folder(model)


def _check_kind(profile: str, candidate: Path) -> None:
    """See that a profile can serve a candidate.

    Raises:
        InputError: It takes adapters in GGUF and this is none, or the other way round.
    """
    server = load_profile(profile).servers.get('reasoner')
    if bool(server and server.adapter) != is_reader(str(candidate)):
        wanted = 'whole models' if is_reader(str(candidate)) else 'adapters in GGUF'
        msg = f'the reasoner of profile {profile} takes {wanted}, and {candidate} is none: '
        msg += 'give the --profile that serves its like'
        raise InputError(msg)


def _settings(kind: type[Gate], args: argparse.Namespace) -> Gate:
    """The settings of a gate, as the command line has them."""
    return kind(**{name: getattr(args, name) for name in setting_infos(kind)})


def slot_of(profile: str, named: str) -> Path:
    """Folder of the slot that is named, or of the one that the profile's reasoner follows.

    Raises:
        InputError: The profile follows none.
    """
    server = load_profile(profile).servers.get('reasoner')
    name = named or (server.promoted if server else '')
    if not name:
        msg = f'the reasoner of profile {profile} follows no slot: give --slot'
        raise InputError(msg)
    return slot_folder(name).absolute()


def serving_model(profile: str, slot: Path) -> Path:
    """What serves now: what is in force in the slot, or the profile's own model.

    Raises:
        InputError: The profile has no model on this machine.
    """
    if serving := in_force(slot):
        return serving.weights
    server = load_profile(profile).servers.get('reasoner')
    if server is None or not server.is_path():
        model = server.model if server else 'none'
        msg = f'the reasoner of profile {profile} ({model}) is no folder here: name one that is'
        raise InputError(msg)
    if server.adapter:
        return server.identity()
    path = Path(server.model_argument())
    # A file lies in a folder of the one that it was written from (training.gguf_model).
    return model_folder(str(path.parents[1] if is_gguf_model(str(path)) else path))


def _signature(args: argparse.Namespace) -> Signature:
    """Who changes what is in force, now."""
    date = datetime.now(timezone.utc).isoformat(timespec='seconds')
    return Signature(args.by or user_name(), date, args.why)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog='training.promote', description=__doc__)
    add = parser.add_argument
    add(
        'candidate',
        nargs='?',
        metavar='CANDIDATE',
        help='model or adapter: folder, or file in GGUF',
    )
    add('--rollback', action='store_true', help='take the last promotion back')
    add('--rows', type=Path, metavar='FILE', help='rows; those of the split count')
    add(
        '--profile',
        default=READER,
        metavar='NAME_OR_FILE',
        help='whose reasoner is replaced, and as whose nodes ask (default: %(default)s)',
    )
    add('--against', metavar='DIR', help="incumbent; default: what serves, else the profile's own")
    add('--slot', default='', help="name or path of the slot; default: the profile's")
    add('--split', default='test', help='rows held out from training (default: %(default)s)')
    add('--limit', type=int, default=0, help='so many rows, drawn by the seed; 0: all')
    add('--seed', type=int, default=0)
    add('--token-budget', type=int, default=0, help="of a prompt's scene; 0: the profile's")
    add_judge_option(parser)
    add('--latency-rows', type=int, default=20, help='rows that are timed; 0: do not time')
    add_cache_option(parser, CACHE)
    add(
        '--as-adapter', action='store_true', help='do not merge an adapter: vLLM takes it as it is'
    )
    add('--by', default='', metavar='NAME', help='who signs it off; default: the user who runs it')
    add('--no-promote', action='store_true', help='show what the gate says, and promote nothing')
    add('--why', default='', metavar='TEXT', help='for the history of the slot')
    add(
        '--after-shadow',
        type=Path,
        nargs='+',
        metavar='BAG',
        help='recordings, or folders of them, in which the candidate stood in the shadow of the '
        'incumbent: what they show counts too',
    )
    for kind in (PromotionGateConfig, ShadowGateConfig):
        for name, info in setting_infos(kind).items():
            default = getattr(kind, name)
            option = '--' + name.replace('_', '-')
            text = f'{info.description} (%(default)s)'
            add(option, type=type(default), default=default, help=text)
    return parser


def _run(args: argparse.Namespace) -> int:
    if args.as_adapter and args.latency_rows:
        msg = 'an adapter alone cannot be served to be timed: give --latency-rows 0'
        raise InputError(msg)
    if args.rollback == bool(args.candidate) or bool(args.candidate) != bool(args.rows):
        msg = 'give CANDIDATE and --rows, or --rollback alone'
        raise InputError(msg)
    slot = slot_of(args.profile, args.slot)
    if args.rollback:
        back = roll_back(slot, _signature(args))
        say(f'in force: {back.folder if back else "the model of the profile"}')
        return 0
    return decide(args, slot)


def main(arguments: Sequence[str] | None = None) -> int:
    """Promote (0), refuse (1), or take back (0)."""
    return run_command(_parser(), _run, arguments)


if __name__ == '__main__':
    sys.exit(main())
