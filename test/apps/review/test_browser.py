# SPDX-License-Identifier: Apache-2.0
"""The review page in a real browser (Debian's chromium): what a person gives is never lost."""

from __future__ import annotations

from contextlib import contextmanager
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import Any, TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from embodied_r_ros.apps.review.library import Library
from embodied_r_ros.apps.review.pages import ReviewService
from embodied_r_ros.apps.review.saved import save_page
from embodied_r_ros.core.types.episodes import LabelKind
from embodied_r_ros.data.episodes.labels import labels_path, read_labels
import pytest

from test.apps.review.recordings import HOSTILE, record, RIGHT_TO_LEFT
from test.apps.review.test_recording import report_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

webdriver = pytest.importorskip('selenium.webdriver')
BROWSER, DRIVER = shutil.which('chromium'), shutil.which('chromedriver')
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (BROWSER and DRIVER), reason='no chromium: apt-get install chromium'),
]
_OPTIONS = ('--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage')
WAIT_S = 60.0


class Server:
    """`embodied-r review` in a process of its own, always at the same address."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._arguments = arguments
        with socket.create_server(('127.0.0.1', 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f'http://127.0.0.1:{self.port}'
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        module = [sys.executable, '-m', 'embodied_r_ros.cli.main', 'review', str(self._folder)]
        self._process = subprocess.Popen(
            [*module, *self._arguments, '--port', str(self.port)],
            env={**os.environ, 'LOGNAME': 'ann'},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        assert self._process.stdout.readline() == f'{self.url}/\n'

    def kill(self, how: signal.Signals = signal.SIGKILL) -> int:
        assert self._process
        assert self._process.stdout
        self._process.send_signal(how)
        code = self._process.wait(30)
        self._process.stdout.close()
        self._process = None
        return code

    def close(self) -> None:
        if self._process:
            self.kill()


class Page:
    """The page, and somebody at its keyboard."""

    def __init__(self, driver: Any, url: str) -> None:
        self.driver, self.url = driver, url

    def open(self, query: str = '') -> None:
        self.driver.get(f'{self.url}/{query}')
        self.until(lambda: self.text('#asked h2') != '', 'a question')

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements('css selector', selector))

    def text(self, selector: str) -> str:
        """Text of the first element; empty: there is none."""
        script = 'return document.querySelector(arguments[0])?.textContent ?? ""'
        return str(self.driver.execute_script(script, selector))

    def press(self, keys: str) -> None:
        self.driver.switch_to.active_element.send_keys(keys)

    def click(self, selector: str) -> None:
        self.all(selector)[0].click()

    def fill(self, selector: str, text: str) -> None:
        self.all(selector)[0].send_keys(text)

    def until(self, is_so: Callable[[], object], what: str) -> None:
        end = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < end, f'{what} did not come; the page says {self.status()!r}'
            time.sleep(0.05)

    def status(self) -> str:
        return self.text('#status')

    def address(self) -> dict[str, str]:
        query = parse_qs(urlsplit(self.driver.current_url).query)
        return {name: values[0] for name, values in query.items()}

    def errors(self) -> list[str]:
        """What the browser complains of, but for requests to a server that was killed."""
        entries = self.driver.get_log('browser')
        texts = [entry['message'] for entry in entries if entry['level'] == 'SEVERE']
        return [text for text in texts if 'ERR_CONNECTION' not in text]


@contextmanager
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for option in (*_OPTIONS, '--window-size=1280,900'):
        options.add_argument(option)
    options.set_capability('goog:loggingPrefs', {'browser': 'ALL'})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Server]:
    record(tmp_path / 'e1', cameras=2)
    record(tmp_path / 'e2', name='e2')
    server = Server(tmp_path)
    server.start()
    yield server
    server.close()


@pytest.fixture
def page(site: Server) -> Iterator[Page]:
    with browser() as driver:
        yield Page(driver, site.url)


def kinds(bag: Path) -> list[tuple[str, str, str | None]]:
    """Question, kind and solution of each label that stands."""
    return [(o.question_id, o.kind.value, o.after) for o in read_labels(bag).standing_labels()]


def test_a_person_labels_corrects_takes_back_and_finds_everything_again(
    page: Page, tmp_path: Path
) -> None:
    bag = tmp_path / 'e1'
    page.open('?e=e1&q=run-1')
    assert page.text('#asked h2') == 'Where is the door?'
    page.press(' ')
    page.until(lambda: page.status() == 'saved: right', 'the first label')
    page.click('[data-name="option-C"]')
    page.until(lambda: page.status() == 'saved: C is right', 'the correction')
    assert kinds(bag) == [('run-1', 'right', 'left'), ('run-1', 'correct', 'ahead')]
    pressed = 'return document.querySelector(".options [aria-pressed=true]").textContent'
    assert page.driver.execute_script(pressed).startswith('Cahead')
    page.press('z')
    page.until(lambda: page.status() == 'taken back', 'the undoing')
    assert kinds(bag) == [('run-1', 'right', 'left')]
    page.press('n')
    page.until(lambda: page.address().get('q') == 'run-2', 'the next question')
    page.press('u')
    page.until(lambda: page.status() == 'saved: unanswerable', 'the third label')
    page.driver.refresh()
    page.until(lambda: 'unanswerable: unknown' in page.text('.facts'), 'the label after a reload')
    assert page.address()['q'] == 'run-2'
    assert page.text('#progress').startswith('2 of 10 labelled')
    # Where somebody writes, keys are letters.
    page.click('#ask summary')
    page.fill('#new-text', 'Is an umbrella near?')
    page.fill('#new-options', 'yes\nno')
    page.fill('#new-solution', 'b')
    page.click('#new-write')
    page.until(lambda: page.text('#asked h2') == 'Is an umbrella near?', 'the written question')
    assert [kind for _, kind, _ in kinds(bag)] == ['right', 'unanswerable', 'question']
    assert next(iter(read_labels(bag).questions().values())).after == 'no'
    assert page.errors() == []


def test_a_server_that_is_killed_loses_nothing(site: Server, page: Page, tmp_path: Path) -> None:
    bag = tmp_path / 'e1'
    page.open('?e=e1&q=run-1')
    page.press('b')
    page.until(lambda: page.status().startswith('saved'), 'the first label')
    site.kill()
    with labels_path(bag).open('ab') as file:  # of another writer that died with it
        file.write(b'{"id":"half')
    page.press('c')
    page.until(lambda: page.status().startswith('1 not saved'), 'the news')
    page.driver.refresh()  # nobody is there, and the label waits in the browser
    site.start()
    page.open('?e=e1&q=run-1')
    page.until(lambda: len(kinds(bag)) == 2, 'the label that waited')
    assert kinds(bag) == [('run-1', 'correct', 'right'), ('run-1', 'correct', 'ahead')]
    assert len(read_labels(bag).damage) == 1
    page.until(lambda: 'corrected: ahead' in page.text('.facts'), 'the label')
    assert site.kill(signal.SIGINT) == 0


def test_film_map_and_reasoning_are_at_one_time(page: Page) -> None:
    page.open('?e=e1&q=run-1&t=1.5')
    page.until(lambda: '1.5 / 7.0 s' in page.text('#clock'), 'the time of the address')
    page.until(lambda: len(page.all('#film figcaption')) == 2, 'the film')
    captions = [caption.text for caption in page.all('#film figcaption')]
    assert captions == ['cam0/image · 1.5 s', 'cam1/image · 1.5 s']
    page.until(
        lambda: page.driver.execute_script(
            'return [...document.querySelectorAll("#film img")].every(i => i.naturalWidth > 0)'
        ),
        'pictures of both cameras',
    )
    assert len(page.all('#marks i')) == 5
    page.click('.think button:last-of-type')  # "[4]"
    page.until(lambda: page.address().get('t') == '3.00', 'the time of the fourth delta')
    assert page.text('.deltas .at').startswith('[4], 3.0 s')
    page.press('p')
    page.until(lambda: float(page.address().get('t', 0)) > 3.5, 'the film to run')
    page.press('p')
    assert page.text('#place') != ''
    poster = page.all('#recordings img')[0]
    page.until(lambda: poster.get_attribute('src').endswith('n=0'), 'the first picture')
    hand = webdriver.ActionChains(page.driver).move_to_element(poster)
    hand.move_by_offset(80, 0).perform()
    assert poster.get_attribute('src').endswith('n=4')
    assert page.errors() == []


def test_what_the_camera_read_is_text(page: Page) -> None:
    page.open('?e=e1&q=run-4')
    assert '<script>' in page.text('#asked h2')
    assert page.driver.title.startswith('Review:')
    assert page.all('#asked img:not(.deltas img, .evidence img)') == []
    facts = page.text('.facts')
    assert f'In a sentence{RIGHT_TO_LEFT} stands there [2] <img' in facts
    assert 'Checkunsupported: [4] shows no <img' in facts
    rows = [row.get_attribute('textContent') for row in page.all('.calls li')]
    assert rows[0] == (f'nearest(robot; {HOSTILE}) {RIGHT_TO_LEFT} is 2.5 m away. [2] landmark 3')
    assert rows[1] == 'count(microwave) not known'
    assert rows[2].startswith('no such [3] nano<answer><img')
    # Text that runs the other way turns nothing beside it.
    page.driver.execute_script('arguments[0].scrollIntoView()', page.all('.calls li')[0])
    edge = 'return arguments[0].getBoundingClientRect().left'
    code, words = page.all('.calls li code')[0], page.all('.calls li > bdi')[0]
    assert page.driver.execute_script(edge, code) <= page.driver.execute_script(edge, words)
    page.click('.calls button')  # "[2]"
    page.until(lambda: page.address().get('t') == '1.00', 'the time of the second delta')
    assert page.errors() == []


def test_disagreements_first_and_only_with_the_keyboard(page: Page, tmp_path: Path) -> None:
    page.open('?filter=disagreement')
    page.until(lambda: page.address().get('q') == 'run-1', 'the first disagreement')
    assert 'other says: right' in page.text('.warn')
    for name in ('run-2', 'run-3'):
        page.press('n')
        page.until(lambda name=name: page.address().get('q') == name, name)  # type: ignore[misc]
    page.press('n')
    page.until(lambda: page.address().get('e') == 'e2', 'the next recording')
    who = page.all('#who')[0]
    who.clear()
    who.send_keys('b a')  # a name with a blank, typed with keys that are commands elsewhere
    page.press('\t')
    page.driver.execute_script('document.getElementById("question").focus()')
    page.press('a')
    page.until(lambda: page.status() == 'saved: A is right', 'the label')
    (label,) = read_labels(tmp_path / 'e2').labels
    assert (label.who, label.kind) == ('b a', LabelKind.RIGHT)
    unnamed = page.driver.execute_script(
        'return [...document.querySelectorAll("button, input, select, textarea")].filter(e => '
        '!e.textContent.trim() && !e.labels?.length && !e.ariaLabel && e.offsetParent).length'
    )
    assert unnamed == 0


def test_names_on_the_map_are_never_written_over_each_other(page: Page) -> None:
    page.open('?e=e1')
    names = page.driver.execute_script(
        """
        const shapes = Array.from({ length: 25 }, (_, n) => {
          const x = 150 + 4 * (n % 5), y = 110 + 4 * Math.floor(n / 5), half = [3, 3];
          return { x, y, half, left: x - 3, right: x + 3, top: y - 3, bottom: y + 3 };
        });
        const names = [];
        for (const shape of shapes) {
          const width = textWidth('yellow blocky object');
          const place = labelPlace(shape, width, shapes, names, 320, 250);
          if (place) names.push(place);
        }
        return names;
        """
    )
    assert 3 <= len(names) < 25
    for number, one in enumerate(names):
        for other in names[:number]:
            is_beside = one['right'] <= other['left'] or other['right'] <= one['left']
            assert is_beside or one['bottom'] <= other['top'] or other['bottom'] <= one['top']


def test_a_replay_stands_beside_the_recording(tmp_path: Path) -> None:
    record(tmp_path / 'lab' / 'e1', cameras=1)
    report = tmp_path / 'report.json'
    report.write_text(json.dumps(report_of('e1')))
    server = Server(tmp_path / 'lab', '--replay', str(report))
    server.start()
    try:
        with browser() as driver:
            page = Page(driver, server.url)
            page.open()
            assert page.address().get('q', 'run-1') == 'run-1'  # what was answered otherwise
            assert 'perceived again by detector/x' in page.text('#replay-title')
            assert page.text('#moments li .chip.added') == '+ door'
            columns = [column.text for column in page.all('#asked .columns small')[:2]]
            assert columns == ['Recorded: nano', 'other, replayed with detector/x']
            page.click('#moments li button')
            page.until(lambda: page.address().get('t') == '4.00', 'the moment that differs most')
            assert page.errors() == []
    finally:
        server.close()


WIDTHS = """
const wide = [...document.querySelectorAll('body *')].filter(one =>
  one.getBoundingClientRect().right > innerWidth + 1 && !one.closest('.skip, dialog, svg'));
return [innerWidth, document.documentElement.scrollWidth, wide.map(one => one.outerHTML)];
"""


def test_a_phone_shows_all_of_the_page(page: Page) -> None:
    screen = {'width': 390, 'height': 844, 'deviceScaleFactor': 2, 'mobile': True}
    page.driver.execute_cdp_cmd('Emulation.setDeviceMetricsOverride', screen)
    page.open('?e=e1&q=run-4')
    width, needed, wide = page.driver.execute_script(WIDTHS)
    assert (width, needed, wide) == (390, 390, [])
    height = 'return document.querySelector(".row button").getBoundingClientRect().height'
    assert page.driver.execute_script(height) >= 40  # for a thumb
    assert page.driver.execute_script(height.replace('.row button', '#film img')) >= 140
    page.click('[data-name=unanswerable]')
    page.until(lambda: page.status() == 'saved: unanswerable', 'the label')
    assert page.errors() == []


CONTRAST = """
const light = text => { const [r, g, b] = text.match(/[0-9.]+/g).map(Number)
  .map(v => v / 255).map(v => v <= 0.04 ? v / 12.9 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const ground = one => { for (; one; one = one.parentElement) {
  const colour = getComputedStyle(one).backgroundColor;
  if (colour !== 'rgba(0, 0, 0, 0)') return colour; } return 'rgb(255, 255, 255)'; };
return [...document.querySelectorAll('header *, #question *, #scene *, #list *')].filter(one =>
  [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim())
  && !one.closest('svg, :disabled') && one.getBoundingClientRect().height).map(one => {
  const [a, b] = [light(getComputedStyle(one).color), light(ground(one))];
  return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), one.outerHTML.slice(0, 80)]; });
"""


@pytest.mark.parametrize('scheme', ['light', 'dark'])
def test_text_can_be_read_in_light_and_dark(page: Page, scheme: str) -> None:
    features = [{'name': 'prefers-color-scheme', 'value': scheme}]
    page.driver.execute_cdp_cmd('Emulation.setEmulatedMedia', {'features': features})
    page.open('?e=e1&q=run-1')
    page.press(' ')
    page.until(lambda: page.status() == 'saved: right', 'the label')
    script = 'return getComputedStyle(document.body).backgroundColor'
    ground = [int(part) for part in page.driver.execute_script(script)[4:-1].split(',')]
    assert (max(ground) < 60) == (scheme == 'dark')
    assert [one for one in page.driver.execute_script(CONTRAST) if one[0] < 4.5] == []


def test_text_that_turns_its_direction_turns_nothing_else_and_is_told(page: Page) -> None:
    page.open('?e=e1&q=run-4')
    assert 'turn its direction' in page.text('.warn')
    script = """return [...document.querySelectorAll('#asked *, #questions *')].filter(one =>
      [...one.childNodes].some(node => node.nodeType === 3 && node.data.includes('\u202e'))
      && getComputedStyle(one).unicodeBidi !== 'isolate').map(one => one.outerHTML)"""
    assert page.driver.execute_script(script) == []
    page.open('?e=e1&q=run-1')
    assert 'turn its direction' not in page.text('#asked')


def test_a_question_is_typed_answered_by_evidence_and_labelled(page: Page, tmp_path: Path) -> None:
    page.open('?e=e1&q=run-1&t=2')
    page.fill('#new-text', 'How far did you move?\n')
    page.until(lambda: page.status() == 'answered and saved', 'the answer')
    page.until(lambda: page.text('#asked h2') == 'How far did you move?', 'the question')
    (label,) = read_labels(tmp_path / 'e1').labels
    assert label.question
    assert float(label.before or 0) == 4.0
    assert label.question.stamp_ns == 8_000_000_000  # the end: all that was seen
    assert label.question.sentence in page.text('.facts')
    shown = page.all('#strip button')
    assert [one.text.split()[0] for one in shown] == [f'[{n}]' for n in range(1, 6)]
    used = [one.text.split()[0] for one in page.all('.evidence button')]
    assert used == [f'[{n}]' for n in range(1, 6)]
    assert [one.text.split()[0] for one in page.all('#strip .used')] == used
    page.all('.evidence button')[2].click()
    page.until(lambda: page.address().get('t') == '2.00', 'the moment of the third')
    assert page.text('#now').startswith('[3]')
    page.press(' ')
    page.until(lambda: page.status() == 'saved: right', 'the label')
    assert [kind for _, kind, _ in kinds(tmp_path / 'e1')] == ['question', 'right']
    # What was seen up to a moment is asked at that moment.
    page.click('#ask summary')
    page.click('#new-now')
    page.fill('#new-text', 'How far did you go until now?')
    page.click('#new-ask')
    page.until(lambda: 'until now' in page.text('#asked h2'), 'the second answer')
    question = read_labels(tmp_path / 'e1').labels[-1].question
    assert question
    assert question.stamp_ns == 3_000_000_000
    assert page.errors() == []


@pytest.mark.parametrize(('width', 'scheme'), [(1400, 'light'), (390, 'dark')])
def test_a_page_of_one_file_needs_no_server(tmp_path: Path, width: int, scheme: str) -> None:
    library = Library(record(tmp_path / 'e1'))
    save_page(tmp_path / 'page.html', ReviewService(library, lambda: 1), 'e1', HOSTILE)
    library.close()
    with browser() as driver:
        page = Page(driver, (tmp_path / 'page.html').as_uri().rstrip('/'))
        screen = {'width': width, 'height': 844, 'deviceScaleFactor': 1, 'mobile': width < 500}
        driver.execute_cdp_cmd('Emulation.setDeviceMetricsOverride', screen)
        features = [{'name': 'prefers-color-scheme', 'value': scheme}]
        driver.execute_cdp_cmd('Emulation.setEmulatedMedia', {'features': features})
        driver.get(page.url)
        page.until(lambda: page.text('#asked h2') != '', 'a question')
        assert page.text('#title') == HOSTILE
        assert [one.is_displayed() for one in page.all('#new, #who, #list')] == [False] * 3
        page.until(
            lambda: driver.execute_script(
                'return [...document.querySelectorAll("#strip img, #film img")]'
                '.every(i => i.naturalWidth > 0)'
            ),
            'the pictures',
        )
        page.all('#strip button')[3].click()
        page.until(lambda: page.text('#clock').startswith('3.0'), 'the moment of the fourth')
        assert driver.execute_script(WIDTHS)[1:] == [width, []]
        assert [one for one in driver.execute_script(CONTRAST) if one[0] < 4.5] == []
        assert page.errors() == []
