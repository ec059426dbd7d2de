# SPDX-License-Identifier: Apache-2.0
"""Names of things in rooms, with typical sizes, and which of them are easily taken for others.

The names are those of everyday English that detectors and data sets of rooms use. A group holds
things that are alike: who was shown a stool and is asked about a chair has a near miss. Two names
of the same thing (`sofa`, `couch`) are no near misses. Of the names that VSI-Bench does not ask
for, one in four is held out from training, by the digest of the name alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from embodied_r_ros.core.types.geometry import Position

# 'group support: name[=other name] length width height [m]; …'. Support: where such things are:
# floor, wall, top (on furniture), ceiling.
_TABLE = """
seat floor: chair .5 .5 .9; armchair .85 .85 .9; stool .4 .4 .5; bar stool .4 .4 .75;
 bench 1.2 .4 .45; office chair .65 .65 1.1; rocking chair .9 .65 1; folding chair .5 .5 .8;
 high chair .55 .55 1; wheelchair 1.05 .65 .9; beanbag .8 .8 .7; ottoman .6 .6 .42;
 footstool .45 .35 .4; recliner .95 .9 1
couch floor: sofa=couch 2 .9 .85; loveseat 1.5 .9 .85; daybed 1.95 .9 .6; futon 1.9 .9 .5;
 chaise longue 1.7 .75 .8
bed floor: bed 2.1 1.6 .6; bunk bed 2 1 1.7; crib 1.25 .7 .9; mattress 2 1.4 .22; cot 1.9 .7 .4;
 pet bed .8 .6 .2
table floor: table 1.4 .8 .74; desk 1.4 .7 .75; coffee table 1.1 .6 .42; side table .45 .45 .55;
 dining table 1.8 .9 .75; nightstand=bedside table .45 .4 .55; workbench 1.6 .7 .9;
 console table 1.1 .35 .8; ping pong table 2.74 1.52 .76; counter 2.4 .65 .92; bar 2 .6 1.1;
 kitchen island 1.8 .9 .92; vanity 1 .5 .85; podium .6 .5 1.15
storage floor: cabinet .9 .45 1.2; wardrobe 1.2 .6 2; closet 1.5 .65 2.2;
 bookshelf=bookcase .9 .3 1.9; dresser 1.2 .5 .85; chest of drawers .9 .45 1; shoe rack .8 .3 .6;
 filing cabinet .5 .6 1.3; locker .4 .5 1.8; sideboard 1.6 .45 .8; trunk .9 .5 .5;
 coat rack .45 .45 1.75; tv stand 1.5 .4 .5; storage rack 1 .45 1.8; wine rack .6 .3 .9;
 safe .45 .45 .6; display case 1 .45 1.7; kitchen cabinet .8 .4 .8; hamper .45 .4 .6;
 toy chest .8 .4 .45
shelf wall: shelf .9 .25 .3; spice rack .4 .12 .3; key rack .3 .06 .1; medicine cabinet .5 .15 .65;
 mailbox .35 .15 .4
opening wall: door .9 .1 2; window 1.2 .15 1.3; glass door .95 .1 2.1; sliding door 1.8 .1 2.1;
 gate 1.2 .1 1.4; fire door 1 .1 2.1; cat flap .25 .08 .25
cover wall: curtain 1.4 .15 2.2; blind 1.2 .08 1.4; shower curtain 1.7 .1 1.9; tapestry 1.2 .05 1
wall piece wall: picture .6 .05 .5; painting .8 .05 .6; poster .6 .03 .85; mirror .6 .05 1.1;
 clock .3 .06 .3; calendar .3 .03 .45; whiteboard 1.8 .06 1.1; blackboard 2 .06 1.1;
 bulletin board 1.2 .05 .9; dartboard .45 .06 .45; world world map 1 .03 .8;
 photo frame .25 .03 .2; coat hook .12 .08 .12; sign .4 .04 .3; flag 1 .05 .7
screen top: tv=television 1.1 .15 .68; monitor .55 .2 .45; laptop .35 .25 .24; tablet .25 .17 .02;
 projector .35 .28 .12; e-reader .17 .12 .01; game console .35 .25 .1; screen 1.2 .1 .75
computer top: keyboard .44 .14 .03; computer mouse .11 .07 .04; mouse pad .25 .2 .01;
 computer tower .45 .2 .45; router .22 .16 .06; hard drive .12 .08 .02; webcam .1 .06 .06;
 game controller .16 .11 .06; joystick .2 .18 .22; microphone .2 .07 .07; headphones .2 .18 .09
office top: printer .45 .4 .3; scanner .48 .3 .08; copier .6 .6 1.1; telephone .22 .2 .1;
 cell phone=mobile phone .15 .07 .01; paper shredder .35 .25 .45; fax machine .4 .35 .2;
 calculator .16 .08 .02; stapler .15 .04 .06; hole punch .12 .1 .07; tape dispenser .15 .06 .08;
 remote control .18 .05 .02; walkie-talkie .15 .06 .04
paper top: book .24 .17 .04; notebook .21 .15 .02; magazine .28 .21 .01; newspaper .38 .28 .02;
 binder .32 .28 .07; folder .32 .24 .02; envelope .22 .11 .01; comic book .26 .17 .01;
 photo album .3 .3 .05
writing top: pen .14 .02 .02; pencil .18 .02 .02; marker .14 .02 .02; eraser .06 .03 .02;
 ruler .3 .04 .01; paintbrush .2 .03 .02; crayon .09 .02 .02
cutting top: scissors .2 .08 .02; knife .3 .04 .02; pizza cutter .22 .08 .03;
 box cutter .16 .04 .02; cutting board .4 .28 .02; grater .25 .11 .09; can opener .2 .06 .05;
 bottle opener .15 .05 .02
cooling floor: refrigerator=fridge .7 .7 1.75; freezer .7 .7 .9; mini fridge .5 .5 .65;
 water cooler .35 .35 1.05; vending machine .95 .85 1.85; wine cooler .55 .55 .85
stove floor: stove=cooker .6 .6 .9; oven .6 .6 .6; dishwasher .6 .6 .85; fireplace 1.3 .5 1.1;
 wood stove .6 .55 .85; grill 1.2 .6 1.1
laundry floor: washer=washing machine .6 .6 .85; dryer .6 .62 .85; ironing board 1.3 .4 .9;
 laundry basket .55 .4 .5; drying rack 1.1 .55 1
kitchen device top: microwave .5 .4 .3; toaster .3 .18 .2; toaster oven .45 .35 .25;
 kettle .23 .17 .25; coffee maker .25 .22 .35; blender .2 .18 .4; mixer .35 .22 .35;
 rice cooker .3 .28 .25; food processor .25 .22 .4; air fryer .35 .3 .35; waffle iron .3 .25 .15;
 kitchen scale .22 .18 .05; slow cooker .35 .28 .25; juicer .25 .2 .35
pot top: pan .45 .28 .08; pot .3 .24 .16; wok .55 .35 .12; saucepan .35 .18 .12;
 baking tray .4 .3 .03; casserole .35 .25 .14; teapot .24 .15 .15; pitcher .2 .14 .25;
 colander .28 .26 .13
crockery top: cup .1 .08 .09; mug .12 .09 .1; bowl .17 .17 .07; plate .26 .26 .02;
 glass .08 .08 .14; wine glass .08 .08 .2; saucer .15 .15 .02; tray .45 .32 .04; candle .07 .07 .12
cutlery top: spoon .17 .04 .02; fork .19 .03 .02; chopsticks .24 .02 .01; ladle .3 .09 .07;
 spatula .32 .08 .03; whisk .28 .07 .07; tongs .28 .05 .04; rolling pin .42 .06 .06
bottle top: bottle .08 .08 .27; jar .09 .09 .13; can .07 .07 .12; thermos .08 .08 .28;
 vase .16 .16 .3; flask .09 .09 .2; spray bottle .1 .07 .26; soap dispenser .08 .08 .18;
 perfume .07 .04 .1; milk carton .09 .09 .22; shaker .05 .05 .09
fruit top: apple .08 .08 .08; orange .08 .08 .08; banana .2 .04 .04; lemon .09 .06 .06;
 pear .1 .07 .07; peach .07 .07 .07; pineapple .3 .14 .14; watermelon .3 .24 .24;
 grapes .18 .11 .08; tomato .07 .07 .06; mango .12 .08 .08; avocado .11 .07 .07
food top: bread .28 .12 .1; cake .26 .26 .12; pizza .32 .32 .03; sandwich .14 .12 .06;
 donut .09 .09 .04; cookie .08 .08 .02; egg .06 .05 .05; carrot .18 .03 .03; cereal box .19 .07 .3;
 cheese .15 .1 .06
bath floor: toilet .7 .4 .75; bathtub 1.65 .75 .58; shower .9 .9 2; bidet .56 .36 .4;
 urinal .4 .35 .65; hot tub 2 2 .9
basin wall: sink .6 .5 .25; washbasin .55 .45 .2; faucet .2 .06 .25; towel rack .6 .1 .15;
 hand dryer .28 .2 .3; toilet paper .12 .12 .11; shower head .22 .12 .1;
 paper towel dispenser .3 .22 .4
toiletry top: toothbrush .19 .02 .02; toothpaste .18 .05 .04; hair dryer .25 .1 .22;
 razor .14 .05 .03; comb .18 .04 .01; hairbrush .22 .06 .04; soap .09 .06 .03; shampoo .07 .05 .2;
 tissue box .24 .12 .1; cotton swabs .1 .08 .08
cloth top: towel .6 .4 .06; blanket 1.4 1 .08; pillow .6 .4 .15; cushion .45 .45 .14;
 quilt 1.6 1.2 .1; tablecloth 1.5 1.1 .02; bath mat .75 .5 .02; doormat .75 .45 .02; rug 2 1.4 .02;
 carpet 2.8 2 .02; sleeping bag .45 .22 .22; yoga mat 1.8 .6 .02
clothing top: hat .3 .26 .13; cap .27 .19 .12; jacket .7 .55 .1; coat .95 .55 .12; shirt .7 .5 .04;
 scarf .9 .25 .05; gloves .25 .12 .04; tie 1.2 .09 .02; belt .9 .04 .02; sock .3 .1 .04;
 umbrella .9 .12 .12; dress 1.1 .5 .06; sweater .65 .55 .08
footwear floor: shoes .3 .22 .12; boots .32 .24 .32; slippers .28 .2 .08; sneakers .3 .22 .13;
 sandals .28 .2 .06; high heels .25 .16 .16; roller skates .32 .24 .25; skis 1.7 .2 .12
bag floor: backpack .48 .32 .2; handbag .35 .15 .28; suitcase .7 .45 .28; briefcase .42 .1 .32;
 paper bag .3 .16 .38; shopping bag .4 .18 .4; duffel bag .6 .3 .3; garbage bag .5 .45 .6;
 laptop bag .4 .1 .3; purse .25 .1 .18; tote bag .4 .12 .38; messenger bag .38 .12 .3
container floor: box .5 .4 .35; crate .55 .38 .32; basket .4 .32 .28; bucket .3 .3 .32;
 bin .35 .35 .45; trash can=trash bin .35 .35 .6; recycling bin .4 .4 .65;
 cardboard box .55 .42 .4; barrel .6 .6 .9; cooler .6 .38 .4; toolbox .48 .24 .22;
 litter box .55 .42 .3; tub .5 .4 .25; cart .8 .5 .95
lamp floor: lamp .4 .4 1.5; floor lamp .4 .4 1.65; table lamp .32 .32 .5; desk lamp .3 .2 .48;
 lantern .2 .2 .35; flashlight .18 .05 .05; candlestick .12 .12 .3
ceiling light ceiling: ceiling light .45 .45 .15; chandelier .8 .8 .7; ceiling fan 1.2 1.2 .4;
 smoke detector .12 .12 .05; exhaust fan .35 .35 .2; sprinkler .08 .08 .08; skylight 1 .8 .2;
 disco ball .35 .35 .35
climate floor: fan .45 .4 1.2; heater .7 .2 .6; radiator 1 .15 .6; air conditioner .85 .28 .3;
 humidifier .22 .22 .32; dehumidifier .36 .24 .55; air purifier .38 .24 .6
plant floor: plant .5 .5 .9; potted plant .4 .4 .7; flower pot .28 .28 .26; christmas tree 1 1 1.9;
 cactus .25 .25 .5; bouquet .3 .28 .4; flower .2 .18 .35; bonsai .35 .28 .3; palm .9 .9 1.8
music floor: piano 1.5 .6 1.25; guitar 1 .38 .12; violin .6 .21 .1; drum .55 .55 .5;
 cello 1.25 .45 .3; accordion .42 .22 .4; speaker .3 .28 .55; amplifier .5 .26 .45;
 music stand .5 .45 1.1; record player .45 .36 .14; radio .3 .1 .2; trumpet .5 .13 .15;
 synthesizer 1.2 .35 .12; saxophone .65 .25 .2; harp .9 .5 1.6
sport floor: bicycle 1.75 .6 1.05; tricycle .85 .5 .7; scooter 1 .4 1; skateboard .8 .2 .14;
 treadmill 1.8 .8 1.4; exercise bike 1.1 .55 1.25; dumbbell .35 .15 .15; kettlebell .2 .18 .28;
 rowing machine 2.2 .55 .9; punching bag .4 .4 1.2; stroller 1 .6 1.05; surfboard 2.1 .52 .2;
 snowboard 1.55 .3 .1; weight bench 1.3 .5 .5
ball floor: soccer ball .22 .22 .22; basketball .24 .24 .24; tennis ball .07 .07 .07;
 volleyball .21 .21 .21; bowling ball .22 .22 .22; exercise ball .65 .65 .65; baseball .07 .07 .07;
 balloon .28 .28 .33; globe .33 .3 .42
racket top: tennis racket .68 .28 .04; badminton racket .67 .22 .03; baseball bat .85 .07 .07;
 golf club 1.1 .12 .1; hockey stick 1.4 .25 .06; frisbee .27 .27 .03; ping pong paddle .26 .15 .03
toy top: teddy bear .35 .28 .3; doll .35 .15 .1; toy car .2 .09 .08; puzzle .3 .22 .05;
 dice .02 .02 .02; toy train .3 .08 .1; kite .8 .7 .04; chessboard .4 .4 .05;
 building blocks .25 .2 .12; dollhouse .7 .35 .65; rocking horse .85 .3 .7;
 action figure .18 .09 .05
tool floor: broom 1.3 .3 .08; mop 1.3 .3 .12; vacuum cleaner .5 .35 .35; rake 1.5 .4 .08;
 shovel 1.1 .25 .12; ladder 1.8 .45 .12; step ladder .9 .45 .12; dustpan .32 .25 .1;
 plunger .5 .15 .15; robot vacuum .35 .35 .1; fire extinguisher .2 .18 .5; hose .5 .5 .2;
 lawn mower 1.2 .55 1
hand tool top: hammer .32 .13 .04; screwdriver .22 .03 .03; wrench .22 .06 .02; pliers .2 .07 .03;
 drill .25 .08 .22; saw .5 .14 .03; tape measure .08 .07 .04; axe .6 .18 .04; clamp .25 .12 .04;
 soldering iron .22 .03 .03
electric wall: power strip .3 .06 .04; power outlet .09 .05 .09; light switch .09 .04 .09;
 thermostat .1 .04 .12; alarm .14 .06 .14; intercom .14 .05 .22; security camera .18 .1 .1;
 fuse box .4 .12 .5
time top: alarm clock .14 .07 .12; wristwatch .09 .04 .02; hourglass .1 .1 .2; timer .07 .04 .07;
 desk clock .16 .07 .14; metronome .12 .11 .22
small item top: keys .09 .05 .02; wallet .11 .09 .02; eyeglasses .15 .14 .05;
 sunglasses .15 .15 .05; camera .13 .08 .09; binoculars .17 .15 .06; charger .08 .06 .05;
 battery .05 .02 .02; jewelry box .22 .16 .12; figurine .12 .09 .2; sculpture .3 .28 .5;
 trophy .18 .16 .35; piggy bank .18 .14 .15; ashtray .13 .13 .04; lighter .08 .03 .02;
 coin .02 .02 .01; first aid kit .26 .18 .09; medicine bottle .06 .06 .11
person floor: person .5 .4 1.7; baby .65 .3 .25; mannequin .5 .4 1.75; statue .6 .5 1.6;
 robot .5 .5 1.1
animal floor: cat .5 .2 .3; dog .8 .3 .6; rabbit .35 .18 .25; parrot .3 .12 .3;
 hamster .12 .07 .07; goldfish .1 .04 .05; turtle .25 .2 .12; aquarium .8 .38 .45;
 birdcage .45 .4 .7
"""
_HELD_OUT_SHARE = 0.25
# What VSI-Bench asks for: names that a robot will be asked for, so never held out.
BENCHMARK_NAMES = frozenset(
    {
        'backpack', 'basket', 'bathtub', 'bed', 'blanket', 'bookshelf', 'bowl', 'bucket',
        'ceiling light', 'chair', 'clock', 'closet', 'coat rack', 'computer mouse',
        'computer tower', 'counter', 'crate', 'cup', 'cushion', 'cutting board', 'dishwasher',
        'door', 'exhaust fan', 'fan', 'fireplace', 'guitar', 'headphones', 'heater', 'kettle',
        'keyboard', 'lamp', 'laptop', 'mattress', 'microwave', 'mirror', 'monitor', 'nightstand',
        'oven', 'pan', 'paper bag', 'piano', 'pillow', 'plant', 'power strip', 'printer',
        'radiator', 'refrigerator', 'shoe rack', 'shoes', 'sofa', 'stool', 'stove', 'suitcase',
        'table', 'table lamp', 'telephone', 'toilet', 'towel', 'trash bin', 'trash can', 'tv',
        'washer', 'washing machine', 'whiteboard', 'window',
    }
)  # fmt: skip
_PLURALS = {'shelf': 'shelves', 'knife': 'knives', 'scarf': 'scarves', 'goldfish': 'goldfish'}
_PLURAL_NAMES = frozenset(
    {
        'binoculars', 'boots', 'building blocks', 'chopsticks', 'cotton swabs', 'eyeglasses',
        'gloves', 'grapes', 'headphones', 'high heels', 'keys', 'pliers', 'roller skates',
        'sandals', 'scissors', 'shoes', 'skis', 'slippers', 'sneakers', 'sunglasses', 'tongs',
    }
)  # fmt: skip


@dataclass(frozen=True)
class NamedThing:
    """A kind of thing that rooms hold."""

    name: str
    size: Position  # typical length, width, height [m]
    group: str  # of things that are alike
    support: str  # floor, wall, top (on furniture) or ceiling
    synonym: str = ''  # another name of the same; empty: none


@cache
def named_things() -> dict[str, NamedThing]:
    """All of them, by each of their names, in the order of the table."""
    things: dict[str, NamedThing] = {}
    for entry in _TABLE.strip().replace('\n ', ' ').splitlines():
        heading, _, members = entry.partition(':')
        *words, support = heading.split()
        for member in members.split(';'):
            *name, length, width, height = member.split()
            first, _, other = ' '.join(name).partition('=')
            size = float(length), float(width), float(height)
            for own, synonym in ((first, other), (other, first)):
                if own:
                    things[own] = NamedThing(own, size, ' '.join(words), support, synonym)
    return things


def near_misses(name: str) -> tuple[str, ...]:
    """Names of other things that are alike; empty for a name that is not in the table.

    What the thing may be called as well is none of them: an office chair is a chair.

    >>> near_misses('nightstand')[:2]
    ('table', 'desk')
    """
    own = named_things().get(name)
    if own is None:
        return ()
    others = (thing.name for thing in named_things().values() if thing.group == own.group)
    also = other_names(name) | {name}
    return tuple(other for other in others if other not in also)


def other_names(name: str) -> frozenset[str]:
    """What a thing may be called as well: a couch is a sofa, an office chair is a chair."""
    words = name.split(' ')
    own = named_things().get(name)
    names = {' '.join(words[index:]) for index in range(1, len(words))}
    return frozenset(names | ({own.synonym} if own and own.synonym else set()))


def with_article(name: str) -> str:
    """A name after 'a' or 'an'; several of a thing stand alone.

    >>> [with_article(name) for name in ('armchair', 'chair', 'scissors')]
    ['an armchair', 'a chair', 'scissors']
    """
    if name in _PLURAL_NAMES:
        return name
    return f'{"an" if name[0] in "aeio" or name == "umbrella" else "a"} {name}'


def is_held_out_name(name: str) -> bool:
    """Tell whether a name is kept from training: by the name alone, whatever the table holds."""
    if name in BENCHMARK_NAMES:
        return False
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:4], 'big') / 2**32 < _HELD_OUT_SHARE


def plural(name: str) -> str:
    """Several of a thing.

    >>> [plural(name) for name in ('chair', 'toy box', 'bookshelf', 'shoes')]
    ['chairs', 'toy boxes', 'bookshelves', 'shoes']
    """
    if name in _PLURAL_NAMES:
        return name
    *words, last = name.split(' ')
    for single, several in _PLURALS.items():
        if last.endswith(single):
            return ' '.join([*words, last.removesuffix(single) + several])
    if last.endswith(('s', 'x', 'ch', 'sh')):
        several = last + 'es'
    elif last.endswith('y') and last[-2:-1] not in 'aeiou':
        several = last[:-1] + 'ies'
    else:
        several = last + 's'
    return ' '.join([*words, several])


def first_mentions(text: str, labels: Sequence[str]) -> dict[str, int]:
    """Where a text first names things, by their labels or else by other names of them.

    The bag of 'garbage bag' is no tote bag where garbage bag is a label too.
    """
    lower = {label: label.lower() for label in labels}
    places: dict[str, int] = {}
    for label in sorted(labels, key=len, reverse=True):
        pattern = _names_pattern({lower[label]})
        if match := pattern.search(text):
            places[label] = match.start()
            text = pattern.sub(lambda match: '_' * len(match[0]), text)
    for label in labels:
        others = {name for name in other_names(lower[label]) if name}
        if label not in places and others and (match := _names_pattern(others).search(text)):
            places[label] = match.start()
    return places


def _names_pattern(names: Collection[str]) -> re.Pattern[str]:
    """What matches one or several of some names."""
    every = {*names, *map(plural, names)}
    pattern = '|'.join(map(re.escape, sorted(every, key=len, reverse=True)))
    return re.compile(rf'(?<!\w)(?:{pattern})(?!\w)')
