# SPDX-License-Identifier: Apache-2.0
"""Known sentences, and which of them a question is most like.

Two sentences are as alike as the mean of two cosines: of their embeddings (the static ones of
WordLlama, 16 MB, 0.1 ms a sentence), which know words that mean the same, and of their words and
pairs of words, weighted by how rare they are, which know what must stand there literally.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from random import Random
import re
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError
import numpy as np
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

_INNERMOST = r'\[([^\[\]]*)\]'
_SLOT = re.compile(r'\{a?([w-z])s?\}')
_LIST = re.compile(r'\{x\}, (?:the )?\{y\},? (?:(?:and|or) )?(?:the )?\{z\}')
_EACH = 6  # sentences of a pattern
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
    """All sentences, with what compares them."""

    sentences: tuple[KnownSentence, ...]
    vectors: NDArray[np.float32]
    slots: NDArray[np.int64]  # how many each has
    weights: dict[str, float]  # of words and pairs
    holders: dict[str, tuple[list[int], list[float]]]  # sentences with each, and its share there
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
        for part in ('patterns', 'people', 'kinds')
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


def _shares(text: str, weights: dict[str, float]) -> dict[str, float]:
    """Weighted words and pairs of a text, as a unit vector."""
    values = {
        gram: count * weights[gram] * (_PAIR if ' ' in gram else 1.0)
        for gram, count in _grams(text).items()
        if gram in weights
    }
    length = float(np.linalg.norm(list(values.values()))) if values else 0.0
    return {gram: value / max(length, 1e-9) for gram, value in values.items()}


@cache
def known() -> _Known:
    """All sentences, ready to be compared.

    Raises:
        ConfigError: The package with the vectors is not installed.
    """
    read, rng = read_sentences(), Random(0)
    pairs = [
        (expand_pattern(pattern, rng), call)
        for call, patterns in read['patterns'].items()
        for pattern in patterns
        for _ in range(_EACH)
    ]
    given = (*read['people'].items(), *read['kinds'].items())
    pairs += [(text, call) for call, texts in given for text in texts]
    sentences = tuple(_sentence(*pair) for pair in dict.fromkeys(pairs))
    counts = Counter(gram for each in sentences for gram in _grams(each.text))
    weights = {gram: float(np.log(len(sentences) / (1 + n))) for gram, n in counts.items()}
    holders: dict[str, tuple[list[int], list[float]]] = {}
    for index, each in enumerate(sentences):
        for gram, share in _shares(each.text, weights).items():
            own = holders.setdefault(gram, ([], []))
            own[0].append(index)
            own[1].append(share)
    vectors = embed([each.text for each in sentences])
    slots = np.array([len(each.slots) for each in sentences])
    words = frozenset(word for each in sentences for word in each.text.split())
    return _Known(sentences, vectors, slots, weights, holders, words)


def _sentence(text: str, calls: str) -> KnownSentence:
    if _LIST.search(text):
        text, calls = _LIST.sub('{xs}', text), calls.replace('{x}, {y}, {z}', '{x}')
    calls = 'count({c})' if '{c}' in text else calls
    slots = tuple(dict.fromkeys(_SLOT.findall(text)))
    for slot, word in _MASKS.items():
        text = text.replace(slot, word)
    return KnownSentence(plain_text(text).strip(' ?.!'), calls, slots)


def most_similar(text: str, things: int) -> tuple[KnownSentence, float]:
    """The sentence that a text is most like, and how much: up to 1.

    Args:
        text: In lower case, with 'thing' in place of each name, and 'things' of each list.
        things: How many different ones these are.

    Raises:
        ConfigError: The package with the vectors is not installed.
    """
    all_known, text = known(), text.strip(' ?.!')
    literal = np.zeros(len(all_known.sentences), np.float32)
    for gram, share in _shares(text, all_known.weights).items():
        indices, shares = all_known.holders[gram]
        literal[indices] += share * np.array(shares, np.float32)
    similar = (all_known.vectors @ embed([text])[0] + literal) / 2
    similar = np.where(all_known.slots == things, similar, -1)
    best = int(similar.argmax())
    return all_known.sentences[best], float(similar[best])
