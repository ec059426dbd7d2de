# SPDX-License-Identifier: Apache-2.0
"""Known sentences, and how a question is read by those that it is like.

Two sentences are as alike as the mean of two kernels: the squared cosine of their embeddings (the
static ones of WordLlama, 16 MB, 0.1 ms a sentence), which know words that mean the same, and the
cosine of their words and pairs of words, weighted by how rare they are, which know what must stand
there literally. How surely a question is read as calls is the kernel ridge regression of that.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from random import Random
import re
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.common.files import alone_in, user_folder, write_whole
from embodied_r_ros.common.settings import read_yaml
import numpy as np
from scipy.sparse import csr_array
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

_Pairs = tuple[tuple[str, str], ...]  # sentences with their calls
_INNERMOST = r'\[([^\[\]]*)\]'
_SLOT = re.compile(r'\{a?([w-z])s?\}')
_LIST = re.compile(r'\{x\}, (?:the )?\{y\},? (?:(?:and|or) )?(?:the )?\{z\}')
_EACH = 6  # sentences of a pattern
NOTHING = 'unknown()'  # the calls of what no tool answers
_RIDGE = 0.25  # of the regression
_PAIR = 0.5  # weight of two words beside that of one
_WORD = re.compile(r"[a-z0-9']+")
_MASKS = {'{c}': 'red', '{n}': '3'}
for _slot in 'wxyz':
    _MASKS |= {f'{{{_slot}}}': 'thing', f'{{{_slot}s}}': 'things', f'{{a{_slot}}}': 'a thing'}
_PREFACE = re.compile(
    r'^(?:any (?:idea|clue)|(?:do|can|could) you (?:know|tell me|say)|tell me|i wonder|say)'
    r'[,:\s]+(?=(?:how|what|which|where|when|who|whether|if)\b)'
)
_FIRST_VIEW = re.compile(
    r'\b(?:(?:its|the|your|my|our) )?first (?:view|heading|image|picture|place|position)\b'
)
_SHORT = re.compile(r"\b(where|what|who|when|how)'?s\b")


@dataclass(frozen=True)
class KnownSentence:
    """A sentence, in which things stand as 'thing', and what reads it."""

    text: str
    calls: str  # as calls.py writes them, with slots for things; or a kind of reading.py
    slots: tuple[str, ...]  # of the things, in the order of the sentence


@dataclass(frozen=True)
class _Known:
    """All sentences, and what a question is compared with them by."""

    vectors: NDArray[np.float32]  # of each sentence
    columns: dict[str, int]  # of words and pairs
    weights: NDArray[np.float64]  # of each column
    grams: csr_array  # what each sentence has of them, as unit vectors
    readings: tuple[KnownSentence, ...]  # one of each that differ in calls or slots
    slots: NDArray[np.int64]  # how many each of these has
    coefficients: NDArray[np.float64]  # of each sentence for each of these
    words: frozenset[str]


@cache
def read_sentences() -> dict[str, dict[str, tuple[str, ...]]]:
    """What stands in sentences.yaml: patterns and sentences, by their calls or kinds."""
    text = files(__package__).joinpath('sentences.yaml').read_text(encoding='utf-8')
    read = yaml.safe_load(text)

    def filled(pattern: str) -> str:
        return re.sub(r'<(\w+)>', lambda match: str(read['fragments'][match[1]]), pattern)

    return {
        part: {call: tuple(map(filled, texts)) for call, texts in read[part].items()}
        for part in ('patterns', 'people')
    }


def expand_pattern(pattern: str, rng: Random) -> str:
    """A wording of a pattern: one of what stands in each pair of brackets, which may be nested.

    >>> from random import Random
    >>> expand_pattern('How [warm|cold] is it [|now]?', Random(0))
    'How cold is it now?'
    """
    text = pattern
    while (found := re.sub(_INNERMOST, lambda m: rng.choice(m[1].split('|')), text)) != text:
        text = found
    return re.sub(r' +(?=[ ?.,]|$)', '', text)


def plain_text(question: str) -> str:
    """A question in lower case, without what only introduces it."""
    text = ' '.join(question.lower().replace('\u2019', "'").split())
    text = _PREFACE.sub('', text)
    text = _FIRST_VIEW.sub('the start', text)
    return _SHORT.sub(r'\1 is', text).replace('(s)', 's')


@cache
def _weights() -> tuple[NDArray[np.float16], Callable[[str], list[int]]]:
    """Vectors of tokens, and what gives the tokens of a text.

    Raises:
        ConfigError: The package with them is not installed.
    """
    # Its own loader looks for files on the network first.
    spec = find_spec('wordllama')
    if spec is None or not spec.submodule_search_locations:
        msg = 'questions are read by the package wordllama, which is not installed: '
        msg += 'pip install --no-deps wordllama safetensors tokenizers'
        raise ConfigError(msg)
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    folder = Path(next(iter(spec.submodule_search_locations)))
    vectors = next(iter(load_file(folder / 'weights' / 'l2_supercat_256.safetensors').values()))
    tokenizer = Tokenizer.from_file(
        str(folder / 'tokenizers' / 'l2_supercat_tokenizer_config.json')
    )
    tokenizer.no_padding()
    return vectors, lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def embed(sentences: Sequence[str]) -> NDArray[np.float32]:
    """Unit vectors of sentences: the mean of their tokens' vectors. Shape (N, 256).

    Raises:
        ConfigError: The package with the vectors is not installed.
    """
    vectors, tokens = _weights()
    means = [vectors[tokens(text) or [0]].astype(np.float32).mean(axis=0) for text in sentences]
    stacked = np.stack(means)
    lengths: NDArray[np.float32] = np.linalg.norm(stacked, axis=1, keepdims=True)
    units: NDArray[np.float32] = stacked / lengths.clip(1e-9)
    return units


def _grams(text: str) -> Counter[str]:
    """Words and pairs of words."""
    words = _WORD.findall(text)
    pairs = (f'{first} {second}' for first, second in zip(['', *words], words, strict=False))
    return Counter((*words, *pairs))


def _unit_rows(
    texts: Sequence[str], columns: dict[str, int], weights: NDArray[np.float64]
) -> csr_array:
    """Weighted words and pairs of each text, as unit vectors."""
    rows = csr_array((len(texts), len(columns))).tolil()
    for row, text in enumerate(texts):
        for gram, count in _grams(text).items():
            if gram in columns:
                rows[row, columns[gram]] = count * weights[columns[gram]]
    shares = rows.tocsr()
    lengths = np.sqrt(shares.multiply(shares).sum(axis=1))
    return csr_array(shares.multiply(1 / np.maximum(lengths, 1e-9)[:, None]))


def _alike(vectors: NDArray[Any], grams: csr_array, known: _Known | None = None) -> NDArray[Any]:
    """How alike sentences are to all that are known, or to each other."""
    to_vectors, to_grams = (known.vectors, known.grams) if known else (vectors, grams)
    meant = np.clip(vectors @ to_vectors.T, 0, None) ** 2
    both: NDArray[Any] = (meant + (grams @ to_grams.T).toarray()) / 2
    return both


def known() -> _Known:
    """All sentences, those that people taught too, ready to be compared.

    Raises:
        ConfigError: The package with the vectors is not installed, or the file of what was taught
            cannot be read.
    """
    return _known((*package_sentences(), *_taught(*_state_of(taught_path()))))


@lru_cache(1)
def _known(pairs: _Pairs) -> _Known:
    sentences = [_sentence(*pair) for pair in pairs]
    texts = [each.text for each in sentences]
    counts = Counter(gram for text in texts for gram in _grams(text))
    columns = {gram: column for column, gram in enumerate(counts)}
    weights = np.array(
        [
            np.log(len(texts) / (1 + n)) * (_PAIR if ' ' in gram else 1)
            for gram, n in counts.items()
        ]
    )
    vectors, grams = embed(texts), _unit_rows(texts, columns, weights)
    readings = {(each.calls, each.slots): each for each in sentences}
    which = list(readings)
    is_read = np.array([[(s.calls, s.slots) == one for one in which] for s in sentences])
    kernel = _alike(vectors, grams) + _RIDGE * np.eye(len(texts))
    return _Known(
        vectors,
        columns,
        weights,
        grams,
        tuple(readings.values()),
        slots=np.array([len(slots) for _, slots in which]),
        coefficients=np.linalg.solve(kernel, is_read.astype(float)),
        words=frozenset(word for text in texts for word in text.split()),
    )


@cache
def package_sentences() -> _Pairs:
    """All sentences of the package with their calls, of each pattern some."""
    read = read_sentences()
    pairs = [
        (expand_pattern(pattern, Random(f'{pattern} {index}')), calls)
        for calls, patterns in read['patterns'].items()
        for pattern in patterns
        for index in range(_EACH)
    ]
    pairs += [(text, calls) for calls, texts in read['people'].items() for text in texts]
    return tuple(dict.fromkeys(pairs))


def _masked(sentence: str) -> str:
    """A sentence with 'thing' or 'things' in its slots."""
    for slot, word in _MASKS.items():
        sentence = sentence.replace(slot, word)
    return sentence


def _sentence(text: str, calls: str) -> KnownSentence:
    if _LIST.search(text):
        text, calls = _LIST.sub('{xs}', text), calls.replace('{x}, {y}, {z}', '{x}')
    calls = 'count({c})' if '{c}' in text else calls
    slots = tuple(dict.fromkeys(_SLOT.findall(text)))
    order = dict(zip(slots, 'xyzw', strict=False))  # whatever letters the sentence gives them
    calls = re.sub(r'\{([w-z])\}', lambda slot: f'{{{order[slot[1]]}}}', calls)
    return KnownSentence(plain_text(_masked(text)).strip(' ?.!'), calls, tuple(order.values()))


def readings_of(sentence: str, things: int) -> list[tuple[KnownSentence, float]]:
    """How a sentence may be read, by those that it is like, and how surely: about 0 to 1.

    Kernel ridge regression from how alike it is to each sentence to how that one is read.

    Args:
        sentence: In lower case, with slots in place of the things, as sentences.yaml has them.
        things: How many different ones these are.

    Returns:
        The surest first.

    Raises:
        ConfigError: As `known`.
    """
    all_known, text = known(), _masked(sentence).strip(' ?.!')
    grams = _unit_rows([text], all_known.columns, all_known.weights)
    scores = (_alike(embed([text]), grams, all_known) @ all_known.coefficients)[0]
    order = [index for index in np.argsort(-scores) if all_known.slots[index] == things]
    return [(all_known.readings[index], float(scores[index])) for index in order]


# What people taught.


def taught_path() -> Path:
    """File of the sentences that this user's answers taught, by their calls."""
    return user_folder('data', 'sentences') / 'taught.yaml'


def _state_of(path: Path) -> tuple[Path, int, int]:
    try:
        state = path.stat()
    except OSError:
        return path, 0, 0
    return path, state.st_mtime_ns, state.st_size


@lru_cache(1)
def _taught(path: Path, _: int, size: int) -> _Pairs:
    """Sentences and their calls.

    Raises:
        ConfigError: The file is none of such.
    """
    read = read_yaml(path) if size else {}
    try:
        pairs = tuple((text, calls) for calls, texts in read.items() for text in list.copy(texts))
        for read_one in (_sentence(*pair) for pair in pairs):
            read_one.calls.format(c='', **dict.fromkeys(read_one.slots, ''))
    except (AttributeError, LookupError, TypeError, ValueError):
        msg = f'{path} is damaged: expected lists of sentences by their calls; remove or mend it'
        raise ConfigError(msg) from None
    return pairs


def teach(sentence: str, calls: str = '') -> bool:
    """Read a sentence as calls from now on, here and wherever this user's robot answers.

    Args:
        sentence: As sentences.yaml has them.
        calls: Likewise; empty: forget what it was taught to be.

    Returns:
        Whether it was taught something before.

    Raises:
        ConfigError: The file of what was taught is damaged.
        InputError, OSError: It cannot be written.
    """
    path, kept = taught_path(), dict[str, list[str]]()
    path.parent.mkdir(parents=True, exist_ok=True)
    with alone_in(path.parent):  # others may teach at the same time
        before = _taught(*_state_of(path))
        others = [pair for pair in before if pair[0] != sentence]
        for text, own in [*others, *[(sentence, calls)] * bool(calls)]:
            kept.setdefault(own, []).append(text)
        if calls or len(others) < len(before):
            write_whole(path, yaml.safe_dump(kept, allow_unicode=True))
    return len(others) < len(before)
