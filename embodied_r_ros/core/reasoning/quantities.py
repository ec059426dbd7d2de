# SPDX-License-Identifier: Apache-2.0
"""Numbers as people and models write them, with their units."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
import math
import re
import unicodedata

# Pairs of marks in which models wrap an answer: Markdown, LaTeX, quotation marks, brackets.
_WRAPPINGS = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r'\*\*(.+)\*\*', r'\*([^*]+)\*', r'__(.+)__', r'`+([^`]+)`+',
        r'\$\$?([^$]+)\$\$?', r'\\\((.+)\\\)', r'\\\[(.+)\\\]',
        r'\\(?:boxed|fbox|text\w*|math(?:rm|bf|it|tt|sf))\s*\{(.+)\}',
        r'\[\[([^\[\]]+)\]\]', r'\[([^\[\]]+)\]', r'\(([^()]+)\)', r'\{([^{}]+)\}',
        r'"([^"]+)"', r"'([^']+)'", '\u201c([^\u201d]+)\u201d',
        '\u2018([^\u2019]+)\u2019',
    )
)  # fmt: skip


def unwrap(text: str) -> str:
    r"""A text without the marks that models set around an answer, and without a last full stop.

    >>> [unwrap(text) for text in ('**B**.', r'$\boxed{4}$', '[[unknown]]', '"left."', '.5')]
    ['B', '4', 'unknown', 'left', '.5']
    """
    while True:
        inner = text.strip().rstrip('.').rstrip()
        for wrapping in _WRAPPINGS:
            if match := wrapping.fullmatch(inner):
                inner = match[1]
        if inner == text:
            return text
        text = inner


@dataclass(frozen=True)
class Quantity:
    """A number with its unit."""

    value: float  # as written
    dimension: str = ''  # such as 'length'; empty: no unit that is known
    factor: float = 1.0  # by which the value is multiplied for the base unit of the dimension

    def base(self) -> float:
        """The value in the base unit of its dimension."""
        return self.value * self.factor


_MOST_CHARS = 200  # of a text that may be a number
# Of each dimension the units: factor to the base unit, and spellings in lower case and singular.
_UNITS = {
    name: (dimension, factor)
    for dimension, units in {
        'length': {
            1.0: 'm meter metre', 1e3: 'km kilometer kilometre', 0.1: 'dm decimeter decimetre',
            1e-2: 'cm centimeter centimetre', 1e-3: 'mm millimeter millimetre',
            1e-6: 'um \u03bcm micron micrometer micrometre', 0.3048: "ft foot feet '",
            0.0254: 'in inch inche "', 0.9144: 'yd yard', 1609.344: 'mi mile',
        },
        'area': {1.0: 'sqm', 0.3048**2: 'sqft', 1e4: 'ha hectare'},
        'volume': {1e-3: 'l liter litre'},
        'angle': {1.0: 'rad radian', math.pi / 180: 'deg degree \u00b0'},
        'time': {
            1.0: 's sec second', 1e-3: 'ms msec millisecond', 60.0: 'min minute',
            3600.0: 'h hr hour', 86400.0: 'day',
        },
        'length/time': {1609.344 / 3600: 'mph', 1 / 3.6: 'kph'},
        'mass': {1.0: 'kg kilogram kilo', 1e-3: 'g gram'},
        'share': {0.01: '% percent percentage pct'},
        'celsius': {1.0: '\u00b0c celsius'},
        'fahrenheit': {1.0: '\u00b0f fahrenheit'},
    }.items()
    for factor, names in units.items()
    for name in names.split()
}  # fmt: skip
_POWERS_OF_LENGTH = {1: 'length', 2: 'area', 3: 'volume'}


def _name_pattern(name: str) -> str:
    if name == 'in':  # '3 in total' has no unit
        return r'in\.?(?=\W*$)'
    # A word ends where its letters end, but for the digit of a square; a mark such as % anywhere.
    return re.escape(name) + (r's?(?![^\W\d_])' if name[-1].isalpha() else '')


_NAMES = '|'.join(map(_name_pattern, sorted(_UNITS, key=len, reverse=True)))
_UNIT = re.compile(
    rf'(?:(?P<word>sq(?:uare|\.)?|cu(?:bic|\.)?)\s+)?(?P<name>{_NAMES})'
    r'(?:\^(?P<power>[23])|(?<=[a-z])(?P<digit>[23]))?(?:(?<=[\'"%\u00b0])|(?!\d))'
    rf'(?:\s*(?:/|\bper\b)\s*(?P<under>{_NAMES})(?:\^?(?P<under_power>2))?(?!\d))?',
    re.IGNORECASE,
)


def _unit(match: re.Match[str]) -> tuple[str, float]:
    """Dimension and factor of a unit as it is spelt."""
    dimension, factor = _named(match['name'])
    word = (match['word'] or '')[:2].lower()
    power = int(match['power'] or match['digit'] or {'sq': 2, 'cu': 3}.get(word, 1))
    if dimension == 'length':
        dimension, factor = _POWERS_OF_LENGTH[power], factor**power
    if match['under']:
        under, divisor = _named(match['under'])
        under_power = int(match['under_power'] or 1)
        dimension, factor = dimension + f'/{under}' * under_power, factor / divisor**under_power
    return dimension, factor


def _named(spelling: str) -> tuple[str, float]:
    name = spelling.lower().rstrip('.')
    return _UNITS[name] if name in _UNITS else _UNITS[name.removesuffix('s')]


_DIGITS = (
    r'(?:'
    r'\d{1,3}(?:,\d{2,3})*,\d{3}(?!\d)(?:\.\d+)?'  # 1,234.5
    r'|[1-9]\d{0,2}(?:\.\d{3}){2,}(?!\d)'  # 1.234.567
    r'|[1-9]\d{0,2}(?:\.\d{3})+,\d+'  # 1.234,5
    r"|[1-9]\d{0,2}(?:[ '_\u2019]\d{3})+(?!\d)(?:[.,]\d+)?"  # 1 234.5
    r'|\d+,\d+'  # 2,5
    r'|\d+\.?\d*|\.\d+)'  # 2.5, 2., .5
)
_NUMBER = re.compile(
    rf'(?P<sign>[-+]|minus\s|negative\s|plus\s)?\s*(?:(?P<whole>\d+)\s+(?=\d+/))?'
    rf'(?P<digits>{_DIGITS})'
    r'(?:(?:e|\s?[x*\u00d7]\s?10\s?\^?\s?)\{?(?P<exponent>[-+]?\d{1,3})\}?(?![\d.])'
    r'|/(?P<under>[1-9]\d*)(?!\d))?'
    r'(?:\s*(?P<times>hundred|thousand|million|billion)s?\b)?',
    re.IGNORECASE,
)
_POWERS = {'hundred': 1e2, 'thousand': 1e3, 'million': 1e6, 'billion': 1e9}
_HEDGE = re.compile(
    r'(?:(?:about|approximately|approximate|approx\.?|around|roughly|nearly|almost|circa|ca\.|'
    r'c\.|exactly|precisely|some|estimated|~|\u2248|\u2243|\u2245|\u223c|=|:|'
    r'(?:the\s+)?(?:final\s+|correct\s+)?(?:answer|result|distance|length|width|height|depth|'
    r'size|area|angle|count|number|total)\b|is\b|are\b|it\b|it\'s\b|there\b|at\b(?!\s+(?:least|'
    r'most))|a\b|the\b|of\b|to\s+be\b)\s*)*',
    re.IGNORECASE,
)
# After a number these begin another one, or take it back.
_NO_TAIL = re.compile(
    r'\d|[<>?=]|\b(?:and|or|plus|minus|not|but|unknown|versus|vs|than|else|half|quarters?|two|three|'
    r'four|five|six|seven|eight|nine|ten|eleven|twelve|hundred|thousand|dozen)\b',
    re.IGNORECASE,
)
_OR_SO = re.compile(r'\s*,?\s*\bor\s+(?:so|thereabouts)\b', re.IGNORECASE)
_CHARACTERS = str.maketrans(
    {
        **dict.fromkeys('\u2212\u2010\u2011\u2012\u2013\u2014\ufe63\uff0d', '-'),
        **dict.fromkeys('\u00ba\u02da', '\u00b0'),
        **dict.fromkeys('\u2032\u00b4', "'"),
        **dict.fromkeys('\u2033\u201d', '"'),
        '\u00b2': '^2',
        '\u00b3': '^3',
        '\u00b7': '*',
        '\u22c5': '*',
    }
)
_SUPERSCRIPTS = '\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b'
_TEN_TO = re.compile(f'10([{_SUPERSCRIPTS}]+)')
_RAISED = str.maketrans(_SUPERSCRIPTS, '0123456789-')
_LATEX = (
    (re.compile(r'\\[dt]?frac\s*\{(\d+)\}\s*\{(\d+)\}'), r' \1/\2'),
    (re.compile(r'\^\{?\\circ\}?|\\degree'), '\u00b0'),
    (re.compile(r'\\(?:times|cdot)\b'), '*'),
    (re.compile(r'\\(?:approx|sim|simeq)\b'), '~'),
    (re.compile(r'\\(?:text\w*|math(?:rm|bf|it))\s*\{([^{}]*)\}'), r' \1 '),
    (re.compile(r'\{,\}'), ','),
    (re.compile(r'\s*\^(?:\{(\d)\}|(\d))'), r'^\1\2'),
    (re.compile(r'\\[,;:! ]'), ' '),
    (re.compile(r'\\%'), '%'),
    (re.compile(r'\*\*|\$'), ''),
)


def _plain(text: str) -> str:
    """A text in the characters that the patterns know."""
    text = _TEN_TO.sub(lambda match: '10^' + match[1].translate(_RAISED), text)
    text = ''.join(
        f' {unicodedata.normalize("NFKC", char)}'.replace('\u2044', '/')
        if unicodedata.decomposition(char).startswith('<fraction>')
        else char
        for char in text.translate(_CHARACTERS)
    )
    text = unicodedata.normalize('NFKC', text).translate(_CHARACTERS)
    for pattern, replacement in _LATEX:
        text = pattern.sub(replacement, text)
    return ' '.join(text.split())


def quantity_in(text: str) -> Quantity | None:
    """The quantity that a text is; None: it is none, or more than one, such as a range.

    >>> [quantity_in(text) for text in ('about 1,250', '2-4', '3 or 4')]
    [Quantity(value=1250.0, dimension='', factor=1.0), None, None]
    >>> quantity_in('3 m away').dimension, quantity_in('300 cm').base()
    ('length', 3.0)
    """
    if len(text) > _MOST_CHARS:
        return None
    rest = unwrap(_plain(text))
    lead = _HEDGE.match(rest)
    rest = rest[lead.end() :] if lead else rest
    parts: list[Quantity] = []
    while True:
        read = _leading_quantity(rest)
        if read is None:
            break
        part, rest = read
        parts.append(part)
        if not part.dimension or not re.match(r'\s*(?:and\s+)?\d', rest):
            break
        rest = re.sub(r'^\s*(?:and\s+)?', '', rest)
    tail = _OR_SO.sub('', rest)
    if not parts or _NO_TAIL.search(tail) or not _is_tail(tail):
        return None
    return parts[0] if len(parts) == 1 else _sum(parts)


def _is_tail(tail: str) -> bool:
    """Tell whether what follows a number leaves it this number: nothing, or words."""
    return not tail or not (tail[0].isalnum() or tail[0] in '/^:*+-~\\"\'_')


def _leading_quantity(text: str) -> tuple[Quantity, str] | None:
    """The quantity at the start of a text, and the rest of the text; None: there is none."""
    number = _NUMBER.match(text)
    value = _value(number) if number else math.nan
    if number is None or not math.isfinite(value):
        return None
    rest = text[number.end() :]
    unit = _UNIT.match(rest.lstrip(' -'))
    if unit is None or rest.startswith(' -'):
        return Quantity(value), rest
    return Quantity(value, *_unit(unit)), rest.lstrip(' -')[unit.end() :]


def _value(number: re.Match[str]) -> float:
    digits = re.sub(r"[ '_\u2019]", '', number['digits'])
    if re.fullmatch(r'\d{1,3}(,\d{2,3})*,\d{3}(\.\d+)?', digits) and not digits.startswith('0'):
        digits = digits.replace(',', '')
    elif digits.count('.') > 1 or ('.' in digits and ',' in digits):
        digits = digits.replace('.', '').replace(',', '.')
    value = float(digits.replace(',', '.'))
    if number['under']:
        value = float(number['whole'] or 0) + value / int(number['under'])
    with_exponent = f'1e{number["exponent"] or 0}'
    value *= float(with_exponent) * _POWERS.get((number['times'] or '').lower(), 1.0)
    return (
        -value if (number['sign'] or '').strip().lower() in {'-', 'minus', 'negative'} else value
    )


def _sum(parts: list[Quantity]) -> Quantity | None:
    """What '5 ft 3 in' is; None: the parts do not go from larger to smaller units of one kind."""
    first = parts[0]
    falls = all(
        a.dimension == b.dimension and a.factor > b.factor and b.value >= 0
        for a, b in pairwise(parts)
    )
    if not falls:
        return None
    sign = math.copysign(1.0, first.value)
    base = first.base() + sign * sum(part.base() for part in parts[1:])
    return Quantity(base / first.factor, first.dimension, first.factor)


_WORDS = re.findall(r'\w+', 'none one two three four five six seven eight nine ten eleven twelve')
COUNTS = {word: number for number, word in enumerate(_WORDS)} | {'twice': 2}
_COUNT = re.compile(rf'\b(?:{"|".join(_WORDS)}|(?:half )?an?(?=\s+(?:{_NAMES})(?:\W|$)))\b')
# What compares with a number: more unless it is less.
_COMPARED = re.compile(
    r'\b(?:(?P<less>less|fewer|closer|nearer|smaller|shorter|lower|under|below|within|at most|'
    r'in the first)|more|over|above|beyond|at least|'
    r'(?:farth|furth|high|tall|wid|long|bigg|larg)er)(?: than| about)* (?P<rest>\d.*)'
)


def in_digits(text: str) -> str:
    """A text in lower case with its number words in digits.

    >>> in_digits('less than a metre, or two')
    'less than 1 metre, or 2'
    """
    return _COUNT.sub(lambda match: str(COUNTS.get(match[0], 0.5 if ' ' in match[0] else 1)), text)


def limit_in(text: str) -> tuple[str, Quantity] | None:
    """With what a text in lower case compares: 'less' or 'more', and a quantity; None: nothing.

    >>> limit_in('are they less than a metre apart?')
    ('less', Quantity(value=1.0, dimension='length', factor=1.0))
    """
    match = _COMPARED.search(in_digits(text))
    read = _leading_quantity(match['rest']) if match else None
    return ('less' if match['less'] else 'more', read[0]) if match and read else None


_ASKED_UNIT = re.compile(rf'(?:\bin|\bhow many|\bwhat|[(\[])\s+{_UNIT.pattern}', re.IGNORECASE)


def unit_in(question: str) -> Quantity | None:
    """One of the unit in which a question wants its answer; None: it names none.

    >>> unit_in('How large is this room, in square meters?').dimension
    'area'
    """
    match = _ASKED_UNIT.search(_plain(re.sub(r'([(\[])', r'\1 ', question)))
    return Quantity(1.0, *_unit(match)) if match else None


def compared_values(
    answer: Quantity, truth: Quantity, question_unit: Quantity | None = None
) -> tuple[float, float] | None:
    """Both values in one unit; None: they are of different dimensions.

    A number without a unit is in the unit that the question names, else in that of the other one;
    0.5 beside a percentage is a share.

    Args:
        answer: The answer.
        truth: The right answer.
        question_unit: The unit of the question; None: it names none.
    """
    answer, truth = (_in_unit(value, question_unit) for value in (answer, truth))
    if not answer.dimension or not truth.dimension:
        bare = truth if answer.dimension else answer
        is_share = 'share' in (answer.dimension, truth.dimension) and abs(bare.value) <= 1
        return (answer.base(), truth.base()) if is_share else (answer.value, truth.value)
    if answer.dimension != truth.dimension:
        return None
    return answer.base(), truth.base()


def _in_unit(value: Quantity, unit: Quantity | None) -> Quantity:
    if value.dimension or unit is None:
        return value
    return Quantity(value.value, unit.dimension, unit.factor)
