# SPDX-License-Identifier: Apache-2.0
"""The review page over HTTP: what it shows, what it takes, and what it refuses."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import replace
import errno
import json
import math
import os
from pathlib import Path
import re
import shutil
from typing import Any, TYPE_CHECKING

from embodied_r_ros.apps.review import server
from embodied_r_ros.apps.review.asking import EpisodeAsker
from embodied_r_ros.apps.review.library import Library, MOST_OPEN
from embodied_r_ros.apps.review.pages import Asker, Learner, ReviewService
from embodied_r_ros.apps.review.recording import rows_by_episode
from embodied_r_ros.apps.review.saved import save_page
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.reasoning.question import Question, ReasonerConfig, Refusal, RefusalCode
from embodied_r_ros.core.types.answers import ToolCall
from embodied_r_ros.core.types.episodes import LabelKind
from embodied_r_ros.data.episodes.episode import read_episode
from embodied_r_ros.data.episodes.labels import LABELS, read_labels
from embodied_r_ros.data.questions.collect import rows_of, RowsRecipe
from embodied_r_ros.data.questions.coverage import Coverage
from embodied_r_ros.data.questions.derive import QuestionsConfig
from embodied_r_ros.data.questions.row import write_rows
import pytest

from test.apps.review.recordings import ANSWERS, HOSTILE, record
from test.data.questions.test_logged import answer, SECOND_NS
from test.requirements.package import options_of_setup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from embodied_r_ros.apps.review.recording import RowQuestion

starlette = pytest.importorskip('starlette.testclient')
NOW_NS = 1_700_000_000 * SECOND_NS
OWN = 'http://127.0.0.1:8350'
Rows = dict[str, list['RowQuestion']]


class Reviewer:
    """A person at the page, without a browser."""

    def __init__(
        self, library: Library, ask: Asker | None = None, learn: Learner | None = None, **site: str
    ) -> None:
        self.library = library
        site = {'host': '127.0.0.1', **site}
        service = ReviewService(library, lambda: NOW_NS, ask, learn)
        app = server.make_app(service, 'lab', 'ann', **site)
        self.http = starlette.TestClient(app, base_url=OWN, follow_redirects=False)

    def get(self, path: str, **query: Any) -> Any:
        reply = self.http.get(path, params=query)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def post(self, path: str, status: int = 200, **body: Any) -> Any:
        reply = self.http.post(path, json={'e': 'e1', 'who': 'ann', **body})
        assert reply.status_code == status, reply.text
        return reply.json()

    def label(self, name: str, question: str, kind: str, status: int = 200, **more: Any) -> Any:
        body = {'id': name, 'question_id': question, 'kind': kind, **more}
        return self.post('/api/label', status, **body)


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    folder = tmp_path / 'lab'
    folder.mkdir()
    record(folder / 'e1')
    return folder


@pytest.fixture
def visit() -> Iterator[Callable[..., Reviewer]]:
    """Opens the page on a folder; in the end everything is closed."""
    reviewers: list[Reviewer] = []

    def open_page(folder: Path, rows: Rows | None = None, **more: Any) -> Reviewer:
        reviewers.append(Reviewer(Library(folder, rows), **more))
        return reviewers[-1]

    yield open_page
    for reviewer in reviewers:
        reviewer.library.close()


def read_all(reviewer: Reviewer) -> None:
    reviewer.library._thread.join(60)


def test_a_recording_is_shown_with_everything_that_belongs_to_an_answer(
    lab: Path, visit: Callable[..., Reviewer]
) -> None:
    reviewer = visit(lab)
    shown = reviewer.get('/api/recording', e='e1', who='ann')
    assert (shown['episode_id'], shown['scene_id'], shown['duration_s']) == ('e1', 'e1 lab', 7.0)
    first = shown['questions'][0]
    assert (first['id'], first['answer'], first['confidence'], first['t']) == (
        'run-1', 'left', 0.75, 3.0
    )  # fmt: skip
    assert (first['deltas'], first['first_number']) == ([0, 1, 2, 3], 1)
    assert first['prompt'].startswith('Seen:')
    assert (first['check'], first['calls'], first['rejected']) == ('unchecked', [], [])
    checked, refused = (one for one in shown['questions'] if one['id'] in {'run-4', 'run-5'})
    assert (checked['check'], checked['check_reason'][:12]) == ('unsupported', '[4] shows no')
    assert HOSTILE in checked['sentence']
    assert checked['calls'][1] == {
        'tool': 'count',
        'arguments': ['microwave'],
        'value': '',
        'unit': '',
        'text': '',
        'landmark_ids': [],
        'delta_ids': [],
        'observations': [],
        'turn': 0,
        'request_id': '',
        'request': '',
        'reply': '',
    }
    assert [one['reason'] for one in checked['rejected']] == ['no such [3]']
    assert refused['check'] == ''  # nothing was answered
    assert [delta['t'] for delta in shown['deltas']] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert [mark['reason'] for mark in shown['film']['keyframes']] == ['low overlap'] * 5
    assert shown['film']['cameras'] == {'camera': [0.0, 1.0, 2.0, 3.0, 4.0]}
    assert [point['position'] for point in shown['map']['path']][-1] == [5.0, 0.0]
    for path in ('/picture?e=e1&c=camera&n=4', '/picture?e=e1&n=0'):
        read_all(reviewer)
        reply = reviewer.http.get(path)
        assert (reply.status_code, reply.content[:2]) == (200, b'\xff\xd8')
    for path in ('/picture?e=e1&c=camera&n=9', '/picture?e=e1&c=no&n=0', '/picture?e=../e1&n=0'):
        assert reviewer.http.get(path).status_code == 404


def test_all_cameras_are_on_one_time_line(tmp_path: Path, visit: Callable[..., Reviewer]) -> None:
    record(tmp_path / 'e1', cameras=2)
    film = visit(tmp_path).get('/api/recording', e='e1')['film']
    assert sorted(film['cameras']) == ['cam0/image', 'cam1/image']
    assert all(len(times) == 50 and times[10] == 1.0 for times in film['cameras'].values())
    assert len(film['keyframes']) == 5


def test_disagreements_are_found_and_come_first(lab: Path, visit: Callable[..., Reviewer]) -> None:
    record(lab / 'a0', ANSWERS[:1], name='a0')
    reviewer = visit(lab)
    read_all(reviewer)
    shown = reviewer.get('/api/recordings', filter='disagreement', who='ann')
    assert [(one['key'], one['hits']) for one in shown['recordings']] == [('e1', 3), ('a0', 0)]
    questions = {q['id']: q for q in reviewer.get('/api/questions', e='e1')['questions']}
    assert questions['run-1']['opinions'] == [
        {'solution': 'right', 'by': 'other', 'agrees': False}
    ]
    assert questions['run-3']['opinions'] == [
        {
            'solution': 'ahead of the start',
            'by': 'the recording (odometry)',
            'agrees': False,
        }
    ]
    assert [name for name, q in questions.items() if q['is_disputed']] == [
        'run-1', 'run-2', 'run-3'
    ]  # fmt: skip
    low = reviewer.get('/api/questions', e='e1', filter='low')['questions']
    assert [q['id'] for q in low if q['is_hit']] == ['run-2', 'run-3', 'run-5']
    assert reviewer.http.get('/api/recordings?filter=best').status_code == 400


def test_labels_reach_the_file_and_come_back(lab: Path, visit: Callable[..., Reviewer]) -> None:
    reviewer = visit(lab)
    read_all(reviewer)
    reviewer.label('l1', 'run-1', 'right')
    reviewer.label('l2', 'run-1', 'correct', after='C')
    reviewer.label('l3', 'run-2', 'unanswerable')
    reviewer.label('l4', 'run-4', 'correct', after=' a lamp ')
    now = reviewer.label('l5', 'run-2', 'undo', undoes='l3')
    labels = {q['id']: q['labels'] for q in now['questions']}
    assert [one['after'] for one in labels['run-1'] + labels['run-4']] == ['ahead', 'a lamp']
    assert labels['run-2'] == []
    layer = read_labels(lab / 'e1')
    assert [(one.kind, one.before, one.after) for one in layer.labels] == [
        (LabelKind.RIGHT, 'left', 'left'),
        (LabelKind.CORRECT, 'left', 'ahead'),
        (LabelKind.UNANSWERABLE, 'right', 'unknown'),
        (LabelKind.CORRECT, HOSTILE, 'a lamp'),
        (LabelKind.UNDO, 'unknown', 'right'),
    ]
    assert {one.when_ns for one in layer.labels} == {NOW_NS}
    shown = reviewer.get('/api/recordings', filter='unlabelled', who='ann')
    assert (shown['labelled'], shown['questions'], shown['hits']) == (2, 5, 3)
    assert reviewer.get('/api/recordings', filter='unlabelled', who='bob')['hits'] == 5
    again = visit(lab)  # as after a restart
    assert again.get('/api/questions', e='e1')['questions'] == now['questions']


def test_a_label_that_is_sent_again_counts_once(lab: Path, visit: Callable[..., Reviewer]) -> None:
    reviewer = visit(lab)
    for _ in range(2):
        reviewer.label('l1', 'run-1', 'correct', after='right')
    assert len(read_labels(lab / 'e1').labels) == 1


def test_a_full_disk_is_no_refusal(
    lab: Path, visit: Callable[..., Reviewer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page keeps what it could not bring to the disk, and tries again."""
    reviewer = visit(lab)

    def write(*_: object) -> int:
        raise OSError(errno.ENOSPC, 'No space left on device')

    with monkeypatch.context() as patched:
        patched.setattr('embodied_r_ros.data.episodes.labels._write', write)
        said = reviewer.label('l1', 'run-1', 'right', 503)
    assert 'No space left' in said['error']
    reviewer.label('l1', 'run-1', 'right')
    assert len(read_labels(lab / 'e1').labels) == 1


def test_people_who_differ_are_shown(lab: Path, visit: Callable[..., Reviewer]) -> None:
    reviewer = visit(lab)
    read_all(reviewer)
    reviewer.label('l1', 'run-1', 'right')
    now = reviewer.label('l2', 'run-1', 'correct', after='C', who='bob')
    assert [q['id'] for q in now['questions'] if q['people_differ']] == ['run-1']
    assert reviewer.get('/api/recordings', filter='people')['hits'] == 1


@pytest.mark.parametrize(
    ('body', 'why'),
    [
        ({'kind': 'correct', 'after': 'above'}, 'none of the options'),
        ({'kind': 'correct'}, 'after is None'),
        ({'kind': 'best'}, "no label 'best'"),
        ({'kind': 'right', 'question_id': 'run-9'}, "no question 'run-9'"),
        ({'kind': 'right', 'question_id': 'run-5'}, 'right is None here'),
        ({'kind': 'right', 'who': ' '}, 'who is'),
        ({'kind': 'right', 'e': '../e1'}, 'there is no recording'),
        ({'kind': 'undo', 'undoes': 'l0'}, 'undoes is'),
    ],
)
def test_labels_that_do_not_fit_are_refused(
    lab: Path, visit: Callable[..., Reviewer], body: dict[str, Any], why: str
) -> None:
    reviewer = visit(lab)
    sent = {'id': 'l1', 'question_id': 'run-1', **body}
    assert why in reviewer.post('/api/label', 400, **sent)['error']
    assert read_labels(lab / 'e1').labels == ()


def test_a_question_is_written_with_its_solution(
    lab: Path, visit: Callable[..., Reviewer]
) -> None:
    reviewer = visit(lab)
    asked: dict[str, Any] = {
        'id': 'q1',
        'text': 'Is the lamp on?',
        'options': ['yes', 'no'],
        't': 2.5,
    }
    for _ in range(2):
        now = reviewer.post('/api/question', **asked, solution='b')
    own = next(q for q in now['questions'] if q['id'] == 'q1')
    assert (own['t'], own['origin'], own['author'], own['labels'][0]['after']) == (
        2.5, 'written', 'ann', 'no'
    )  # fmt: skip
    now = reviewer.label('l1', 'q1', 'correct', after='A')
    own = next(q for q in now['questions'] if q['id'] == 'q1')
    assert own['labels'][0]['after'] == 'yes'
    assert len(read_labels(lab / 'e1').labels) == 2
    for t, options, why in (
        (7.5, ['yes', 'no'], 'outside of the recording'),
        (-1, [], 'outside of the recording'),
        ('now', [], 'expected seconds'),
        (1, ['yes'], 'one option alone'),
        (1, 'yes', 'expected a list'),
    ):
        body: dict[str, Any] = {'id': 'q2', 'text': 'Is it on?', 't': t, 'options': options}
        assert why in reviewer.post('/api/question', 400, **body)['error']


def test_a_model_answers_on_the_spot(lab: Path, visit: Callable[..., Reviewer]) -> None:
    heard = []

    def ask(episode: Any, question: Any, until_ns: float) -> Any:
        heard.append((len(episode.deltas), question.text, until_ns))
        told = answer('offline-1', question.text, question.options)
        call = ToolCall('where', ('door',), observations=(2,), stamps_ns=(2 * SECOND_NS,))
        return replace(told, think='so [1]', sentence='Left [1].', calls=(call,))

    body: dict[str, Any] = {
        'id': 'q1',
        'text': 'Where is it?',
        'options': ['left', 'right', 'ahead'],
        't': 2.5,
    }
    alone = visit(lab)
    assert 'nobody answers' in alone.post('/api/question', 400, **body, ask=True)['error']
    reviewer = visit(lab, ask=ask)
    now = reviewer.post('/api/question', **body, ask=True)
    own = next(q for q in now['questions'] if q['id'] == 'q1')
    assert heard == [(5, 'Where is it?', round(3.5 * SECOND_NS))]
    assert (own['answer'], own['model'], own['think'], own['labels']) == (
        'left', 'nano', 'so [1]', []
    )  # fmt: skip
    assert (own['sentence'], own['check']) == ('Left [1].', 'unchecked')
    assert [call['observations'] for call in own['calls']] == [[2]]
    reviewer.label('l1', 'q1', 'right')
    assert read_labels(lab / 'e1').by_question()['q1']['ann'].after == 'left'


def test_no_answer_is_said_at_once_and_nothing_is_written(
    lab: Path, visit: Callable[..., Reviewer]
) -> None:
    def ask(episode: Any, question: Any, until_ns: float) -> Any:
        raise Refusal(RefusalCode.DEADLINE, 'too late', answer('offline-1', question.text, ()))

    body: dict[str, Any] = {'id': 'q1', 'text': 'Where?', 't': 2.5, 'ask': True}
    reviewer = visit(lab, ask=ask)
    assert 'too late' in reviewer.post('/api/question', 400, **body)['error']
    assert (
        'characters'
        in reviewer.post('/api/question', 400, **{**body, 'text': 'a' * 9999})['error']
    )
    assert not (lab / 'e1' / LABELS).exists()


def test_one_question_is_answered_at_a_time_and_the_model_is_reached_once(lab: Path) -> None:
    reached: list[str] = []

    @contextmanager
    def reach() -> Iterator[None]:
        reached.append('begin')
        yield None
        reached.append('end')

    episode = read_episode(lab / 'e1')
    ask = EpisodeAsker(reach, ReasonerConfig(deadline_s=0.5))
    assert reached == []
    now = ask(episode, Question('Did the robot move?'), math.inf)
    early = ask(episode, Question('How many keyframes are there?'), 2 * SECOND_NS)
    assert (len(now.delta_ids), len(early.delta_ids), reached) == (5, 2, ['begin'])
    with ask._alone, pytest.raises(InputError, match='another question is being answered'):
        ask(episode, Question('Where?'), math.inf)
    ask.close()
    assert reached == ['begin', 'end']


def test_a_correction_tells_its_cause_and_teaches_until_it_is_taken_back(
    lab: Path, visit: Callable[..., Reviewer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('XDG_DATA_HOME', str(tmp_path))
    ask = EpisodeAsker(nullcontext, ReasonerConfig())
    reviewer = visit(lab, ask=ask, learn=ask.learn)
    reviewer.post('/api/question', id='q0', text='How far is the door?', options=[], t=7)
    told = reviewer.label('l1', 'q0', 'correct', after='3 m')
    assert told['lesson'] == 'nothing here is known as door'
    reviewer.post(
        '/api/question', id='q1', text='odo of today, metres?', options=[], t=7, solution=''
    )
    told = reviewer.label('l2', 'q1', 'correct', after='4 m')
    assert told['lesson'] == 'it was misread: it asks for motion(way); from now on it is read so'
    reviewer.label('l3', 'q1', 'wrong')
    assert reviewer.label('l4', 'q1', 'undo', undoes='l3')['lesson'] == ''
    told = reviewer.label('l5', 'q1', 'undo', undoes='l2')
    assert told['lesson'] == 'what it taught is forgotten'
    assert visit(lab).label('l6', 'q1', 'correct', after='9 m')['lesson'] == ''
    monkeypatch.setattr('embodied_r_ros.apps.review.asking.teach', lambda *_: False)
    told = reviewer.label('l7', 'q1', 'correct', after='4 m')
    assert told['lesson'].endswith('it is not read so yet: label others like it')


def test_a_page_of_one_file_shows_the_same_and_its_texts_end_no_script(
    lab: Path, tmp_path: Path, visit: Callable[..., Reviewer]
) -> None:
    service = ReviewService(visit(lab).library, lambda: NOW_NS)
    save_page(tmp_path / 'page.html', service, 'e1', HOSTILE)
    text = (tmp_path / 'page.html').read_text()
    assert text.count('<script') == text.count('</script>') == 2
    assert 'src="/' not in text
    assert 'href="/' not in text
    site = json.loads(re.findall(r'id="site">(.*?)</script>', text)[0])
    assert site['title'] == HOSTILE
    shown = site['saved']['recording']
    assert [q['id'] for q in shown['questions']] == [a.id for a in ANSWERS]
    assert shown['film']['cameras'] == {'camera': [0.0, 1.0, 2.0, 3.0, 4.0]}
    pictures = site['saved']['pictures']['camera']
    assert [one[:23] for one in pictures] == ['data:image/jpeg;base64,'] * 5


def test_rows_are_reviewed_too(lab: Path, tmp_path: Path, visit: Callable[..., Reviewer]) -> None:
    rows = list(rows_of([lab / 'e1'], RowsRecipe(QuestionsConfig()), Coverage()))
    write_rows(tmp_path / 'rows.jsonl', rows)
    reviewer = visit(lab, rows_by_episode(tmp_path / 'rows.jsonl'))
    shown = reviewer.get('/api/questions', e='e1')['questions']
    own = next(q for q in shown if q['origin'] == 'row' and q['options'])
    other = next(option for option in own['options'] if option != own['answer'])
    reviewer.label('l1', own['id'], 'correct', after=other)
    after = rows_of([lab / 'e1'], RowsRecipe(QuestionsConfig()), Coverage())
    assert next(row for row in after if row.id == own['id']).solution_text() == other


def test_five_hundred_recordings_are_listed_before_they_are_read(
    tmp_path: Path, visit: Callable[..., Reviewer], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / 'many'
    record(tmp_path / 'e1', ANSWERS[:1])
    for number in range(500):
        shutil.copytree(tmp_path / 'e1', folder / f'e{number:03}', copy_function=os.link)
    reviewer = visit(folder)
    shown = reviewer.get('/api/recordings', offset='300')
    assert (shown['total'], len(shown['recordings'])) == (500, 200)
    assert shown['read'] < 100
    for number in range(MOST_OPEN + 2):
        assert reviewer.get('/api/recording', e=f'e49{number}')['key'] == f'e49{number}'
    assert list(reviewer.library._open) == [f'e49{number}' for number in range(2, MOST_OPEN + 2)]
    # What is looked at is read first.
    reviewer.library.want(['e450'])
    assert reviewer.library._next() == 'e450'


def test_a_damaged_recording_stops_nothing(lab: Path, visit: Callable[..., Reviewer]) -> None:
    (lab / 'broken').mkdir()
    (lab / 'broken' / 'broken_0.mcap').write_bytes(b'no bag')
    record(lab / 'e2', name='e2')
    (lab / 'e2' / LABELS).write_bytes(b'{"id"\n')
    reviewer = visit(lab)
    read_all(reviewer)
    cards = {card['key']: card for card in reviewer.get('/api/recordings')['recordings']}
    assert 'cannot be read' in cards['broken']['problem']
    assert cards['e1']['problem'] == ''
    assert reviewer.http.get('/api/recording?e=broken').status_code == 400
    assert reviewer.get('/api/questions', e='e2')['damage'] == ['line 1 is no label (cut off)']


def test_nothing_comes_from_outside(lab: Path, visit: Callable[..., Reviewer]) -> None:
    reviewer = visit(lab)
    texts = [reviewer.http.get(path).text for path in ('/', '/static/review.css')]
    texts += [reviewer.http.get(f'/static/{name}').text for name in ('review.js', 'icon.svg')]
    found = {url for text in texts for url in re.findall(r'(?:https?:)?//[\w.]+', text)}
    assert found <= {'http://www.w3.org'}  # a name of SVG, that nobody fetches
    assert 'innerHTML' not in ''.join(texts)
    assert reviewer.http.get('/static/page.html').status_code == 404
    policy = reviewer.http.get('/').headers['content-security-policy']
    assert policy.startswith("default-src 'none'; script-src 'self';")


def test_what_a_page_needs_is_packed() -> None:
    folder = Path(server.__file__).parent
    globs = options_of_setup()['package_data']['embodied_r_ros']
    packed = {path for glob in globs for path in folder.parents[1].glob(glob)}
    assert {folder / name for name in ('page.html', *server._STATIC)} <= packed


@pytest.mark.parametrize(
    ('headers', 'status'),
    [
        ({'host': 'evil.example'}, 421),
        ({'host': 'evil.example:8350'}, 421),
        ({'host': '192.168.0.7:8350'}, 421),
        ({'host': '127.0.0.1.evil.example'}, 421),
        ({'host': ''}, 421),
        ({'origin': 'http://evil.example'}, 403),
        ({'origin': 'null'}, 403),
        ({'origin': 'http://127.0.0.1:9999'}, 403),
        ({'sec-fetch-site': 'cross-site'}, 403),
        ({'content-type': 'text/plain'}, 403),
        ({'host': 'localhost:8350', 'origin': 'http://localhost:8350'}, 200),
        ({'host': '[::1]:8350'}, 200),
        ({'origin': OWN, 'sec-fetch-site': 'same-origin'}, 200),
    ],
)
def test_foreign_pages_cannot_write(
    lab: Path, visit: Callable[..., Reviewer], headers: dict[str, str], status: int
) -> None:
    body = {'e': 'e1', 'id': 'l', 'question_id': 'run-1', 'kind': 'right', 'who': 'ann'}
    headers = {'content-type': 'application/json', **headers}
    reply = visit(lab).http.post('/api/label', content=json.dumps(body), headers=headers)
    assert reply.status_code == status
    assert (lab / 'e1' / LABELS).exists() == (status == 200)


def test_what_is_no_small_object_is_refused(lab: Path, visit: Callable[..., Reviewer]) -> None:
    reviewer = visit(lab)
    for body in ('', '[]', '{', '[' * 50_000, json.dumps({'e': 'x' * 70_000})):
        headers = {'content-type': 'application/json'}
        reply = reviewer.http.post('/api/label', content=body, headers=headers)
        assert (reply.status_code, 'expected one JSON object' in reply.text) == (400, True)


def test_beyond_this_machine_the_token_is_needed(
    lab: Path, visit: Callable[..., Reviewer]
) -> None:
    site = {'host': '0.0.0.0', 'token': 'secret-token'}
    http = visit(lab, **site).http
    for path in (
        '/',
        '/api/recordings',
        '/static/review.js',
        '/?token=wrong',
        '/picture?e=e1&n=0',
    ):
        assert http.get(path).status_code == 401, path
    http.headers['host'] = '192.168.0.7:8350'  # by its address; a name could be anybody's
    welcome = http.get('/?token=secret-token&e=e1&t=2')
    assert (welcome.status_code, welcome.headers['location']) == (303, '/?e=e1&t=2')
    cookie = welcome.headers['set-cookie']
    assert {'HttpOnly', 'SameSite=Strict'} <= set(cookie.split('; '))
    http.cookies.clear()
    kept = {'cookie': cookie.split(';')[0]}
    assert http.get('/api/recordings', headers=kept).status_code == 200
    wrong = {'cookie': kept['cookie'] + 'x'}
    assert http.get('/api/recordings', headers=wrong).status_code == 401
    evil = {**kept, 'host': 'evil.example'}
    assert http.get('/api/recordings', headers=evil).status_code == 421


def test_a_port_that_is_taken_is_named() -> None:
    with server.listen('127.0.0.1', 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(InputError, match=f'cannot listen on 127.0.0.1 port {port}'):
            server.listen('127.0.0.1', port)


def test_links_to_recordings_of_one_name_are_two_recordings(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f'robot{number}').mkdir()
        bag = record(tmp_path / f'robot{number}' / 'bag')
        (tmp_path / 'links').mkdir(exist_ok=True)
        (tmp_path / 'links' / f'bag{number}').symlink_to(bag)
    library = Library(tmp_path / 'links')
    assert [card.key for card in library.cards()] == ['bag1', 'bag2']
    library.close()
