# SPDX-License-Identifier: Apache-2.0
"""Commands that write: their words, what they leave, and how that is read as whole."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
import json
import os
from pathlib import Path
import shlex
import shutil
from typing import TYPE_CHECKING

from embodied_r_ros.arm.import_parquet import ParquetFile
from embodied_r_ros.bags.reader import open_bag, read_serialized
from embodied_r_ros.bags.recovery import bag_state, BagState
from embodied_r_ros.bags.writer import BagWriter
from embodied_r_ros.cli.main import main
from embodied_r_ros.core.types.landmarks import read_scene_map
from embodied_r_ros.data.episodes.inspect import file_sha256
from embodied_r_ros.data.questions.row import read_rows
from embodied_r_ros.serving.promotion import in_force, promote, see_whole
import pytest

from test.arm.datasets import CAMERA, lerobot_v2, MAPPING
from test.data.episodes.test_collect import write_bag
from test.test_architecture import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLE = str(ROOT / 'samples' / 'indoor' / 'episode_00000')
SHORT_NS = 8_000_000_000


def write_short_sample(folder: Path) -> None:
    """The first seconds of the sample, without messages of ours, which are of their day."""
    if (folder / 'metadata.yaml').exists():
        return
    with open_bag(Path(SAMPLE)) as reader, BagWriter(folder) as writer:
        types = {connection.topic: connection.msgtype for connection in reader.connections}
        topics = {topic: name for topic, name in types.items() if 'embodied_r' not in name}
        for topic, type_name in topics.items():
            writer.add_topic(topic, type_name)
        for topic, time_ns, data in read_serialized(reader, topics):
            if time_ns - reader.start_time < SHORT_NS:
                writer.write_serialized(topic, data, time_ns)


def run(words: list[str]) -> int:
    """Run a verb, or a module of the training, in this process."""
    if words[0].startswith('training.'):
        return int(import_module(words[0]).main(words[1:]))
    return main(words)


def whole_png(path: Path) -> None:
    assert path.read_bytes().endswith(b'IEND\xaeB`\x82')


def whole_bag(path: Path) -> None:
    assert path.is_file() or bag_state(path) is BagState.CLOSED
    with open_bag(path) as reader:
        assert sum(1 for _ in reader.messages()) > 1


def whole_mcap(path: Path) -> None:
    from mcap.reader import make_reader

    with path.open('rb') as file:
        summary = make_reader(file).get_summary()
    assert summary
    assert summary.statistics
    assert summary.statistics.message_count > 1


def whole_dataset(path: Path) -> None:
    info = json.loads((path / 'meta' / 'info.json').read_text())
    assert ParquetFile(next(path.glob('data/*/*.parquet'))).rows == info['total_frames']
    assert json.loads((path / 'meta' / 'stats.json').read_text())


def whole_rows(path: Path) -> None:
    assert len(list(read_rows(path))) > 1
    manifest = json.loads(path.with_suffix('.manifest.json').read_bytes())
    assert manifest['rows']['sha256'] == file_sha256(path)


def whole_slot(path: Path) -> None:
    promoted = in_force(path.parent)
    assert promoted
    see_whole(promoted)


def whole_model(path: Path) -> None:
    from safetensors import safe_open

    with safe_open(path / 'model.safetensors', 'numpy') as file:
        assert file.keys()


def is_there(path: Path) -> None:
    assert path.stat().st_size


def read(path: Path) -> None:
    assert json.loads(path.read_bytes())


def nothing(_: Path) -> None:
    pass


def _dataset(folder: Path) -> None:
    lerobot_v2(folder / 'set')
    (folder / 'mapping.yaml').write_text(f'{MAPPING}image: {CAMERA}\n')


def _bags(folder: Path) -> None:
    for seed in range(2):
        write_bag(folder / f'bag{seed}', seed=seed)


def _cut_bag(folder: Path) -> None:
    bag = folder / 'out' / 'ep'
    shutil.copytree(SAMPLE, bag)
    (bag / 'metadata.yaml').unlink()
    (file,) = bag.glob('*.mcap')
    os.truncate(file, file.stat().st_size - 500)


def _slot(folder: Path, model: str = 'a') -> None:
    from test.tiny_models import save_language_model

    pytest.importorskip('torch')
    save_language_model(folder / model)
    promote(folder / 'slot', folder / model, {})


def model_in(folder: Path, name: str = 'model') -> None:
    pytest.importorskip('trl')
    from test.tiny_models import save_language_model

    save_language_model(folder / name)


def _arm(folder: Path) -> None:
    from test.arm.arms import camera, write_arm_bag

    bag = write_arm_bag(folder / 'arm', 'table', at=camera())
    assert main(['questions', str(bag), '--out', str(folder / 'arm.jsonl')]) == 0


@dataclass(frozen=True)
class Writing:
    """A command that writes into OUT."""

    words: str
    leaves: str  # pattern of what it leaves
    check: Callable[[Path], object]  # fails where one of these reads as whole and is not
    prepare: Callable[[Path], None] = nothing  # in the folder IN
    needs: tuple[str, ...] = ()  # modules
    room: tuple[float, ...] = (0.0, 0.5, 1.0)  # on full disks: shares of its largest file
    renames: bool = True  # in its own process: so that an audit hook can see it

    def command(self, folder: Path) -> list[str]:
        """Its words, in a folder with what it needs and a folder `out`."""
        for module in self.needs:
            pytest.importorskip(module)
        sample = folder / 'sample'
        if 'SAMPLE' in self.words:
            write_short_sample(sample)
        places = {
            'OUT': str(folder / 'out'),
            'IN': str(folder),
            'SAMPLE': str(sample),
            'WHOLE': SAMPLE,
        }
        words = shlex.split(self.words)
        for name, place in places.items():
            words = [
                place + word[len(name) :] if word.split('/')[0] == name else word for word in words
            ]
        return words

    def made(self, folder: Path) -> list[Path]:
        """What it left, each of it whole."""
        found = list((folder / 'out').glob(self.leaves))
        for path in found:
            self.check(path)
        return found


_PARQUET = ('pyarrow', 'av')
_ROOM = 'sim indoor --episodes 1 --seed 1 --duration 5 --size 64x48 --out OUT/s'
WRITING = {
    'map': Writing(
        'map SAMPLE --out OUT/m.json --picture OUT/m.png', 'm.json', read_scene_map, room=(0.5,)
    ),
    'perceive': Writing(
        'perceive SAMPLE --perceiver classical --picture OUT/p.png',
        'p.png',
        whole_png,
        room=(0.5,),
    ),
    'lerobot': Writing(
        'episodes export lerobot SAMPLE --rate 2 --out OUT/d', 'd', whole_dataset, needs=_PARQUET
    ),
    'foxglove': Writing('episodes export foxglove WHOLE --out OUT/d', 'd/*.mcap', whole_mcap),
    'questions': Writing(
        'questions SAMPLE --out OUT/rows.jsonl', 'rows.jsonl', whole_rows, room=(1.0,)
    ),
    'demos': Writing(
        'demos import IN/set --mapping IN/mapping.yaml --out OUT/b',
        'b/ep*',
        whole_bag,
        _dataset,
        _PARQUET,
    ),
    'collect': Writing(
        'collect IN/bag0 --out OUT/c', 'c/bag*', whole_bag, _bags, room=(0.0,), renames=False
    ),
    'recover': Writing(
        'episodes recover OUT', 'ep/metadata.yaml', lambda p: whole_bag(p.parent), _cut_bag
    ),
    'replay': Writing('replay WHOLE --perceiver classical --out OUT/r.json', 'r.json', read),
    'ask': Writing(
        'ask SAMPLE "What can you see?" --perceiver classical', 'embodied*/*/*.json', is_there
    ),
    'view': Writing(
        'view SAMPLE --save OUT/v.rrd', 'v.rrd', is_there, needs=('rerun',), room=(0.0, 0.5)
    ),
    'indoor': Writing(_ROOM, 's/ep*', whole_bag, needs=('embodied_r_ros.sim.indoor.world',)),
    'arm': Writing(
        'sim arm --episodes 1 --seed 1 --set arm.rate_hz=5 --size 64x48 --out OUT/s',
        's/ep*',
        whole_bag,
        needs=('embodied_r_ros.sim.arm.world',),
    ),
    'publish': Writing('models publish IN/slot OUT/slot', 'slot/manifest.json', whole_slot, _slot),
    'images': Writing(
        'training.data.vision IN/arm.jsonl IN/arm --out OUT/i',
        'i/*/*.jpg',
        lambda p: None if p.read_bytes().endswith(b'\xff\xd9') else pytest.fail(str(p)),
        _arm,
        ('trl',),
    ),
}
