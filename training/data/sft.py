# SPDX-License-Identifier: Apache-2.0
"""Examples for supervised training: the reasoning of an oracle, or a model's own."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.questions.map_rows import MAP_KINDS
from embodied_r_ros.reasoning.completions import parse_completion, UNKNOWN
from embodied_r_ros.scene.memory import MemoryConfig

from training.data.arm_reader import position_in
from training.data.degrade import (
    bare,
    brief,
    degrade_deltas,
    enlarge_things,
    multiply_things,
    retell_motions,
    sparse,
)
from training.data.rename import rename_things, without_shapes
from training.data.reword import in_words_of, read_wordings, reword_row, Wordings
from training.data.samples import PassRateBand, teaching_samples
from training.data.selection import AskingArguments, rows_of_kinds
from training.data.traces import PATH_KINDS, read_row, READERS, Trace
from training.data.vision import has_image, image_file, image_prompt
from training.eval.generation import prompt_messages
from training.eval.grading import number_accuracy, position_accuracy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from embodied_r_ros.questions.row import Row

# Budgets of a scene [tokens] in which memory merges all but two to six lines.
_TIGHT_BUDGETS = (200, 450)
_VARIANTS = 4  # of the text of a scene
# Simulated rooms beside what was seen of them have one small thing of each colour and shape.
_CHANGES = {
    'object_counting': multiply_things,
    'count_things': multiply_things,
    'object_size_estimation': enlarge_things,
}
_NEAR_NUMBER = 0.75  # mean relative accuracy: less than 15 % off
_NEAR = 0.95  # 1 less the distances along x, y and z [m]: a position as good as the right one


@dataclass
class SftArguments(AskingArguments):
    """What to train, and on what."""

    rows: list[str] = field(metadata={'help': 'files of rows'})
    model: str = field(default='', metadata={'help': 'folder to start from; empty: from scratch'})
    vocab_size: int = field(
        default=1024, metadata={'help': 'from scratch: size of the vocabulary'}
    )
    label_tokens: bool = field(
        default=False, metadata={'help': 'each label of the classical perceiver is one token'}
    )
    word_tokens: int = field(
        default=0, metadata={'help': 'so many frequent words of the rows become tokens'}
    )
    number_tokens: bool = field(
        default=False,
        metadata={'help': 'each number of the text about a place is one token (grow.py)'},
    )
    hidden_size: int = field(default=192, metadata={'help': 'from scratch: width'})
    layers: int = field(default=6, metadata={'help': 'from scratch: depth'})
    added_layers: int = field(
        default=0, metadata={'help': 'layers that a model to start from gets (grow.py)'}
    )
    degraded_share: float = field(
        default=0.2, metadata={'help': 'share of training rows that are cut down (degrade.py)'}
    )
    retold_share: float = field(
        default=0.0, metadata={'help': 'share of training rows with other motions (degrade.py)'}
    )
    bare_share: float = field(
        default=0.0, metadata={'help': 'share of training rows about the way that see nothing'}
    )
    brief_share: float = field(
        default=0.0,
        metadata={'help': 'share of the scenes without a map that are of 1 to 3 keyframes'},
    )
    reworded_share: float = field(
        default=0.0, metadata={'help': 'share of training rows in other words (reword.py)'}
    )
    wordings: list[str] = field(
        default_factory=list, metadata={'help': 'files of more words (reword.py --wordings)'}
    )
    wordings_share: float = field(
        default=0.7, metadata={'help': 'share of the reworded rows that take theirs from there'}
    )
    weights: list[str] = field(
        default_factory=list,
        metadata={'help': 'how often rows of a kind are taken: route_planning=2 duration=0.3'},
    )
    renamed_share: float = field(
        default=0.0,
        metadata={'help': 'share of training rows about a map with made-up names (rename.py)'},
    )
    shapeless_share: float = field(
        default=0.0,
        metadata={'help': 'share of the scenes whose questions about a map know no shapes'},
    )
    sparse_share: float = field(
        default=0.0, metadata={'help': 'share of training rows about a map of fewer things'}
    )
    merged_share: float = field(
        default=0.2, metadata={'help': 'share of training rows with a tight budget: merged lines'}
    )
    samples: str = field(
        default='',
        metadata={'help': 'train on right completions of training.rollouts instead'},
    )
    anchor_share: float = field(
        default=1.0,
        metadata={'help': 'of rows above max_pass_rate, so many are taken, as by grpo'},
    )
    reasoning: bool = field(
        default=True,
        metadata={'help': 'with the reasoning of an oracle; no: answers alone'},
    )
    blind: bool = field(
        default=False, metadata={'help': 'questions alone, with their answers: a blind baseline'}
    )
    lora_rank: int = field(default=0, metadata={'help': 'rank of a LoRA adapter; 0: all weights'})
    max_deltas: int = field(
        default=0, metadata={'help': 'only rows that saw at most so many keyframes; 0: all'}
    )
    recall: int = field(
        default=0, metadata={'help': 'exercises in looking back (exercises.py), beside the rows'}
    )
    sums: int = field(
        default=0,
        metadata={'help': 'drills in numbers of places (place_exercises.py), beside the rows'},
    )
    lookups: int = field(
        default=0,
        metadata={'help': 'exercises with things of places (place_exercises.py), beside the rows'},
    )
    phrases: int = field(
        default=0,
        metadata={'help': 'phrases that come again and again (exercises.py), instead of rows'},
    )
    phrase_length: int = field(default=96, metadata={'help': 'most tokens of such a sequence'})
    max_eval_rows: int = field(default=512, metadata={'help': 'validation rows for the loss'})
    share_prefixes: bool = field(
        default=False, metadata={'help': 'read a scene once for its questions (shared_prefix.py)'}
    )
    muon: bool = field(
        default=False,
        metadata={'help': 'learn the matrices of the layers by Muon (tiny/model.py)'},
    )
    threads: int = field(default=0, metadata={'help': 'CPU threads; 0: as torch chooses'})


def chosen_rows(arguments: SftArguments, split: str) -> Iterator[Row]:
    """The rows of a split that are asked for, of those with an image where images are shown."""
    images = Path(arguments.images) if arguments.images else None
    rows = rows_of_kinds(arguments.rows, arguments.kinds, split, arguments.max_scenes)
    for row in rows:
        is_short = len(row.deltas) <= (arguments.max_deltas or len(row.deltas))
        if is_short and (images is None or has_image(row, images)):
            yield row


def examples(arguments: SftArguments, split: str, seed: int) -> Iterator[dict[str, Any]]:
    """Prompt, completion and number of the scene of every row that an oracle can solve."""
    if arguments.samples:
        yield from right_samples(arguments, split)
        return
    if arguments.blind:
        yield from blind_answers(arguments, split)
        return
    rng = Random(seed)
    weights = _weights(arguments)
    wordings = _wordings(arguments)
    scenes = groupby(
        chosen_rows(arguments, split), key=lambda row: (row.deltas, row.landmarks, row.pose)
    )
    for number, (_, rows) in enumerate(scenes):
        form = _SceneForm.drawn(arguments, rng)
        for row in _drawn(rows, weights, rng):
            # Beside a map there is less room for what was seen.
            is_map_question = row.question_type in MAP_KINDS
            is_short = form.is_tight or (row.has_map and not is_map_question)
            full = form.names_of(row)
            row, in_words = _in_words(full, arguments, wordings, rng)
            is_short |= _extents(row) != _extents(full)
            worded, variant = form.scene_of(row)
            asked = in_words(worded)
            trace = read_row(worded, form.memory, asked)
            if not arguments.reasoning:
                trace = Trace('', row.solution_text())
            # What is cut away cannot be known any more; what is still told must be the solution,
            # but for another path, whose answer is what its text says.
            right = {row.solution_text()} | ({UNKNOWN} if form.is_cut_down or is_short else set())
            is_other_path = bool(variant & 1)
            if is_other_path and trace:
                right |= {trace.answer} & ({*row.options} or {trace.answer})
            if trace and (trace.answer in right or _is_near(row, trace)):
                yield {
                    **_conversation(asked, form.memory, arguments.images),
                    'completion': [{'role': 'assistant', 'content': trace.completion()}],
                    'scene': _VARIANTS * number + variant,
                }


@dataclass(frozen=True)
class _SceneForm:
    """How a scene is told: drawn once for all questions about it, which then share its text."""

    memory: MemoryConfig
    is_tight: bool
    is_cut_down: bool
    is_elsewhere: bool  # tells of another path
    is_bare: bool
    is_shapeless: bool
    is_brief: bool
    draw: float

    @classmethod
    def drawn(cls, arguments: SftArguments, rng: Random) -> _SceneForm:
        """Draw what the shares of the arguments leave open."""
        is_tight = rng.random() < arguments.merged_share
        budget = rng.randint(*_TIGHT_BUDGETS) if is_tight else arguments.token_budget
        return cls(
            MemoryConfig(budget),
            is_tight,
            rng.random() < arguments.degraded_share,
            rng.random() < arguments.retold_share,
            arguments.bare_share > 0 and rng.random() < arguments.bare_share,
            arguments.shapeless_share > 0 and rng.random() < arguments.shapeless_share,
            arguments.brief_share > 0 and rng.random() < arguments.brief_share,
            rng.random(),
        )

    def names_of(self, row: Row) -> Row:
        """The row with the names that its things have in this form."""
        if not self.is_shapeless or row.question_type not in MAP_KINDS:
            return row
        row = without_shapes(row, Random(self.draw))
        change = _CHANGES.get(row.question_type) if row.deltas else None
        return change(row, Random(self.draw)) if change else row

    def scene_of(self, row: Row) -> tuple[Row, int]:
        """The row with its scene in this form, and which variant that is; odd: another path."""
        # A map would tell another path.
        is_path = row.question_type in PATH_KINDS and not row.has_map
        own, is_bare = self.is_elsewhere and is_path, self.is_bare and is_path
        is_other = is_bare or (self.is_shapeless and row.question_type in MAP_KINDS)
        row = retell_motions(row, Random(self.draw)) if own else row
        row = bare(row) if is_bare else row
        row = degrade_deltas(row, Random(self.draw)) if self.is_cut_down else row
        if self.is_brief and not row.has_map and row.question_type in READERS:
            row, own = brief(row, Random(self.draw)), True
        return row, 2 * is_other + own


def _in_words(
    row: Row, arguments: SftArguments, wordings: Wordings, rng: Random
) -> tuple[Row, Callable[[Row], Row]]:
    """The row in words that an oracle reads, and what words it once more for the prompt."""
    is_reworded = rng.random() < arguments.reworded_share
    is_from_file = is_reworded and bool(wordings) and rng.random() < arguments.wordings_share
    row = reword_row(row, rng) if is_reworded and not is_from_file else row
    # Names in what was seen stay as they are.
    is_map_alone = row.has_map and not row.deltas
    is_renamed = is_map_alone and rng.random() < arguments.renamed_share
    row = rename_things(row, rng) if is_renamed else row
    is_sparse = row.has_map and arguments.sparse_share > 0
    row = sparse(row, rng) if is_sparse and rng.random() < arguments.sparse_share else row
    if is_from_file:
        return row, lambda asked: in_words_of(asked, wordings, rng) or asked
    return row, lambda asked: asked


def _extents(row: Row) -> tuple[Any, ...]:
    """How large a map says that the place is and the things in it."""
    return row.room_area_m2, *(landmark.get('size') for landmark in row.landmarks)


def _weights(arguments: SftArguments) -> dict[str, float]:
    """How often rows of a kind are taken; once where nothing is said.

    Raises:
        InputError: A weight is no number from 0 on.
    """
    weights = {}
    for text in arguments.weights:
        kind, _, weight = text.partition('=')
        if not weight.replace('.', '', 1).isdigit():
            msg = f'weights: {text!r}, expected a kind and a number from 0 on: route_planning=2'
            raise InputError(msg)
        weights[kind] = float(weight)
    return weights


def _wordings(arguments: SftArguments) -> Wordings:
    """The wordings of all files together."""
    together: Wordings = {}
    for file in arguments.wordings:
        for kind, texts in read_wordings(Path(file)).items():
            together.setdefault(kind, {}).update(texts)
    return together


def _drawn(rows: Iterable[Row], weights: dict[str, float], rng: Random) -> Iterator[Row]:
    """Rows as often as their kinds weigh, what is left of a weight by chance."""
    for row in rows:
        weight = weights.get(row.question_type, 1.0)
        times = int(weight) + (rng.random() < weight % 1 if weight % 1 else 0)
        for _ in range(times):
            yield row


def _conversation(row: Row, memory: MemoryConfig, images: str) -> dict[str, Any]:
    """The prompt of a row, which tells what was seen or comes with the file of its image."""
    if not images:
        return {'prompt': prompt_messages(row.prompt(memory))}
    prompt = prompt_messages(image_prompt(row, Path(images)))
    return {'prompt': prompt, 'image': str(image_file(row, Path(images)))}


def _is_near(row: Row, trace: Trace) -> bool:
    """Tell whether the answer to an open question is a number or position near the right one."""
    if row.answer_kind == 'number':
        return number_accuracy(row, trace.answer) >= _NEAR_NUMBER
    place = None if row.options else position_in(row.solution)
    return place is not None and position_accuracy(position_in(trace.answer), place) >= _NEAR


def blind_answers(arguments: SftArguments, split: str) -> Iterator[dict[str, Any]]:
    """Questions without what was seen, and their answers: what can be known from questions."""
    for number, row in enumerate(chosen_rows(arguments, split)):
        trace = Trace('Nothing was seen.', row.solution_text())
        yield {
            'prompt': prompt_messages(row.without_scene().prompt(MemoryConfig())),
            'completion': [{'role': 'assistant', 'content': trace.completion()}],
            'scene': number,
        }


def right_samples(arguments: SftArguments, split: str) -> Iterator[dict[str, Any]]:
    """Prompts with the model's own right completions: rejection sampling.

    Raises:
        InputError: A file cannot be read, or the samples leave nothing to train on.
    """
    memory = MemoryConfig(arguments.token_budget)
    band = PassRateBand(arguments.min_pass_rate, arguments.max_pass_rate)
    kept = teaching_samples(Path(arguments.samples), arguments.anchor_share, band)
    for number, row in enumerate(chosen_rows(arguments, split)):
        sampled = kept.get(row.id, {'completions': [], 'right': []})
        for text, right in zip(sampled['completions'], sampled['right'], strict=True):
            if right and parse_completion(text).well_formed:
                worded = _conversation(row, memory, arguments.images)
                completion = [{'role': 'assistant', 'content': text}]
                yield {**worded, 'completion': completion, 'scene': number}
