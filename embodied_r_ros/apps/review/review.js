// SPDX-License-Identifier: Apache-2.0
// The review page. Texts of recordings are data: they only ever become text nodes.
'use strict';

const SVG = 'http://www.w3.org/2000/svg';
const TURNS = /[\u202a-\u202e\u2066-\u2069]/;
const byId = id => document.getElementById(id);
const site = JSON.parse(byId('site').textContent);
const saved = site.saved;  // all that this page shows, where it has no server
const state = {
  key: '', t: 0, filter: 'all', who: '', list: [], offset: 0, total: 0,
  rec: null, questions: [], current: '', playing: false, given: [], busy: false,
};

function make(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'className') node.className = value;
    else if (value === true) node.setAttribute(name, '');
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter(child => child !== null && child !== undefined));
  return node;
}

function draw(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const seconds = t => `${t.toFixed(1)} s`;
const query = values => new URLSearchParams(values).toString();
const pictureOf = (camera, n) => (saved ? saved.pictures[camera][n] : `/picture?${query({ e: state.key, c: camera, n })}`);

function say(text, isBad) {
  byId('status').textContent = text;
  byId('status').title = text;
  byId('status').classList.toggle('bad', Boolean(isBad));
}

async function get(path, values) {
  if (saved) return path === '/api/recordings' ? { recordings: [{ key: saved.recording.key }], total: 1, read: 1 } : saved.recording;
  const reply = await fetch(`${path}?${query(values)}`, { credentials: 'same-origin' });
  const value = await reply.json().catch(() => ({ error: `the server says ${reply.status}` }));
  if (!reply.ok) throw new Error(value.error || `the server says ${reply.status}`);
  return value;
}

/* What a person gives is kept here until the server has it on its disk. */
const WAITING = 'embodied-r-waiting';
const waiting = () => JSON.parse(localStorage.getItem(WAITING) || '[]');
const keepWaiting = items => localStorage.setItem(WAITING, JSON.stringify(items));
let sending = false;

function give(path, body, done) {
  keepWaiting([...waiting(), { path, body, done }]);
  say('saving…');
  return sendWaiting();
}

async function sendWaiting() {
  if (sending) return;
  sending = true;
  try {
    for (let item = waiting()[0]; item; item = waiting()[0]) {
      let reply, value;
      try {
        reply = await fetch(item.path, {
          method: 'POST', credentials: 'same-origin', body: JSON.stringify(item.body),
          headers: { 'content-type': 'application/json' },
        });
        value = await reply.json().catch(() => ({ error: `the server says ${reply.status}` }));
        if (reply.status === 503) throw new Error(value.error);
      } catch (error) {
        const why = error instanceof TypeError ? 'the server does not answer' : error.message;
        say(`${waiting().length} not saved: ${why}; kept here, and tried again`, true);
        setTimeout(sendWaiting, 1500);
        return;
      }
      keepWaiting(waiting().filter(one => one.body.id !== item.body.id));
      state.refused = reply.ok ? '' : item.body.id;
      if (!reply.ok) {
        say(value.error || `the server says ${reply.status}`, true);
        continue;
      }
      say(value.lesson ? `${item.done}; ${value.lesson}` : item.done);
      if (item.body.e === state.key) takeQuestions(value);
      if (item.path === '/api/question') choose(item.body.id);
      loadList();
    }
  } finally {
    sending = false;
  }
}

/* The list of recordings. */
let listTimer = 0;

async function loadList() {
  clearTimeout(listTimer);
  let value;
  try {
    value = await get('/api/recordings', { filter: state.filter, who: state.who, offset: state.offset });
  } catch (error) {
    say(error.message, true);
    listTimer = setTimeout(loadList, 3000);
    return;
  }
  state.list = value.recordings;
  state.total = value.total;
  document.body.classList.toggle('alone', value.total === 1);
  if (saved) return;
  const share = value.questions ? value.labelled / value.questions : 0;
  byId('bar').value = share;
  const read = value.read < value.total ? `, ${value.read} of ${value.total} recordings read` : '';
  byId('progress').textContent = `${value.labelled} of ${value.questions} labelled${read}`;
  showList();
  if (value.read < value.total) listTimer = setTimeout(loadList, 1500);
}

function showList() {
  const list = byId('recordings');
  const rows = new Map([...list.children].map(row => [row.dataset.key, row]));
  const wanted = state.list.map(card => {
    const mark = JSON.stringify([card, card.key === state.key, state.filter]);
    const old = rows.get(card.key);
    return old && old.dataset.mark === mark ? old : cardRow(card, mark);
  });
  const focused = document.activeElement?.closest?.('#recordings li')?.dataset.key;
  list.replaceChildren(...wanted);
  if (focused) [...list.children].find(row => row.dataset.key === focused)?.firstChild.focus();
  byId('more').hidden = state.offset + state.list.length >= state.total;
}

function cardRow(card, mark) {
  const facts = [];
  if (card.problem) facts.push(make('small', { className: 'bad' }, card.problem));
  else if (!card.is_read) facts.push(make('small', {}, 'being read…'));
  else {
    const hits = state.filter === 'all' ? '' : ` · ${card.hits} shown`;
    facts.push(make('small', {}, `${card.duration_s.toFixed(0)} s · ${card.labelled}/${card.questions} labelled${hits}`));
    if (card.disagreements) {
      facts.push(make('br'), make('small', { className: 'odd' }, `${card.disagreements} ${card.disagreements > 1 ? 'disagreements' : 'disagreement'}`));
    }
  }
  const poster = n => `/picture?${query({ e: card.key, n })}`;
  const image = card.posters ? make('img', { src: poster(0), alt: '', loading: 'lazy' }) : null;
  const button = make(
    'button',
    {
      type: 'button', 'aria-current': card.key === state.key ? 'true' : null,
      onclick: () => open(card.key, {}),
      onmousemove: event => {
        if (!image || card.posters < 2) return;
        const box = image.getBoundingClientRect();
        const share = Math.min(0.999, Math.max(0, (event.clientX - box.left) / box.width));
        image.src = poster(Math.floor(share * card.posters));
      },
      onmouseleave: () => { if (image) image.src = poster(0); },
    },
    image, make('b', {}, card.key), ...facts,
  );
  return make('li', { 'data-key': card.key, 'data-mark': mark }, button);
}

/* One recording. */
async function open(key, { question, t, hit }) {
  if (state.playing) togglePlay();
  say('');
  state.key = key;
  // Until it is there, keys have nothing to speak of.
  Object.assign(state, { rec: null, questions: [], current: '' });
  showList();
  let value;
  try {
    value = await get('/api/recording', { e: key, filter: state.filter, who: state.who });
  } catch (error) {
    if (state.key === key) say(error.message, true);
    return;
  }
  if (state.key !== key) return;
  state.rec = value;
  byId('name').replaceChildren(
    value.episode_id, make('small', {}, ` ${value.scene_id && value.scene_id !== value.episode_id ? `· ${value.scene_id} ` : ''}· ${value.duration_s.toFixed(1)} s${value.outcome && value.outcome !== 'unset' ? ` · ended in ${value.outcome}` : ''}`),
  );
  byId('time').max = value.duration_s.toFixed(3);
  drawMap();
  document.body.classList.toggle('with-replay', Boolean(value.replay || value.questions.some(q => q.replayed.length)));
  takeFilm(value.film);
  showMoments();
  takeQuestions(value);
  const first = state.questions.find(q => q.id === question)
    || state.questions.find(q => q.is_hit && (!hit || !mine(q))) || state.questions.find(q => q.is_hit)
    || state.questions[0];
  choose(first ? first.id : '', t);
}

function takeFilm(film) {
  state.rec.film = film;
  const box = byId('film');
  const names = Object.keys(film.cameras);
  if (names.join('\n') !== box.dataset.names) {
    box.dataset.names = names.join('\n');
    box.replaceChildren(...names.map(name => make('figure', { 'data-camera': name }, make('img', { alt: '' }), make('figcaption', {}, name))));
  }
  if (!names.length) {
    box.replaceChildren(make('p', {}, film.problem || (film.is_whole ? 'This recording holds no pictures.' : 'The film is being read…')));
    delete box.dataset.names;
  }
  if (film.problem) say(film.problem, true);
  showStrip();
  drawMarks();
  showTime();
  if (!film.is_whole) {
    const key = state.key;
    setTimeout(async () => {
      try {
        const more = await get('/api/film', { e: key });
        if (state.key === key && state.rec) takeFilm(more);
      } catch { /* the next recording says what is wrong */ }
    }, 500);
  }
}

function takeQuestions(value) {
  if (!state.rec) return;
  state.questions = value.questions;
  if (value.damage.length) say(`labels.jsonl: ${value.damage.join('; ')}: left out, the others are whole`, true);
  drawMarks();
  showQuestions();
  showQuestion();
}

const mine = q => q.labels.find(label => label.who === state.who);
const odd = q => q.is_disputed || q.people_differ;
const kindOf = q => (mine(q) ? 'done' : odd(q) ? 'odd' : 'open');

/* Time. */
function nearest(times, t) {
  let low = 0, high = times.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (times[middle] <= t + 1e-4) low = middle; else high = middle - 1;
  }
  return low;
}

function setTime(t) {
  if (!state.rec) return;
  state.t = Math.min(state.rec.duration_s, Math.max(0, t));
  showTime();
  keepAddress();
}

function showTime() {
  const rec = state.rec;
  if (!rec) return;
  byId('time').value = state.t;
  byId('time').setAttribute('aria-valuetext', seconds(state.t));
  byId('clock').textContent = `${state.t.toFixed(1)} / ${rec.duration_s.toFixed(1)} s`;
  for (const figure of byId('film').querySelectorAll('figure')) {
    const camera = figure.dataset.camera, times = rec.film.cameras[camera];
    if (!times?.length) continue;
    const n = nearest(times, state.t), address = pictureOf(camera, n);
    const image = figure.firstChild;
    if (image.dataset.at !== address && !(state.playing && image.dataset.at && !image.complete)) {
      image.dataset.at = address;
      image.src = address;
      image.alt = `camera ${camera} at ${seconds(times[n])}`;
      figure.lastChild.textContent = `${camera} · ${seconds(times[n])}`;
    }
  }
  const key = [...rec.film.keyframes].reverse().find(mark => mark.t <= state.t + 1e-4);
  byId('now').textContent = key ? `${numberAt(key.camera, key.t)} · ${key.reason}${key.overlap === null ? '' : ` · ${(100 * key.overlap).toFixed(0)} % shared`}` : '';
  showPose();
  markDelta();
}

/* The keyframes, each with the number that it has everywhere. */
function showStrip() {
  const step = Math.ceil(state.rec.deltas.length / 300) || 1;
  byId('strip').replaceChildren(...state.rec.deltas.flatMap((delta, position) => (position % step ? [] : [make('li', {}, thumbnail(position))])));
  markDelta();
}

function thumbnail(position) {
  const delta = state.rec.deltas[position];
  return make('button', { type: 'button', 'data-t': delta.t, 'data-position': position, title: wordsOf(delta), onclick: () => setTime(delta.t) },
    make('img', { src: pictureAt(delta.camera, delta.t), alt: '', loading: 'lazy' }), make('span', {}, `[${position + 1}] ${seconds(delta.t)}`));
}

function drawMarks() {
  const rec = state.rec;
  if (!rec) return;
  const mark = (tag, t, className) => {
    const node = make(tag, { className });
    node.style.left = `${(100 * t) / (rec.duration_s || 1)}%`;
    return node;
  };
  byId('marks').replaceChildren(
    ...rec.film.keyframes.map(one => mark('i', one.t, '')),
    ...state.questions.map(q => mark('b', q.t, `${kindOf(q)}${q.id === state.current ? ' here' : ''}`)),
  );
}

function togglePlay() {
  state.playing = !state.playing;
  byId('play').textContent = state.playing ? '❚❚' : '▶';
  byId('play').setAttribute('aria-label', state.playing ? 'Pause' : 'Play');
  if (!state.playing) return;
  if (state.rec && state.t >= state.rec.duration_s - 0.05) setTime(0);
  let last = performance.now();
  const step = now => {
    if (!state.playing || !state.rec) return;
    setTime(state.t + ((now - last) / 1000) * Number(byId('speed').value));
    last = now;
    if (state.t >= state.rec.duration_s) togglePlay(); else requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
}

function stepPicture(way) {
  const times = state.rec ? [...new Set(Object.values(state.rec.film.cameras).flat())].sort((a, b) => a - b) : [];
  if (!times.length) return;
  const n = nearest(times, state.t);
  const before = way < 0 && times[n] < state.t - 1e-3 ? n : n + way;
  setTime(times[Math.min(times.length - 1, Math.max(0, before))]);
}

/* The map from above. */
let mapScale = null;

function drawMap() {
  const map = state.rec.map;
  byId('place').hidden = !map;
  byId('views').classList.toggle('with-map', Boolean(map));
  mapScale = null;
  if (!map) return;
  const points = [...map.path.map(point => point.position), ...map.landmarks.map(one => one.position)];
  const xs = points.map(point => point[0]), ys = points.map(point => point[1]);
  const [width, height, edge] = [320, 250, 34];
  const span = Math.max((Math.max(...xs) - Math.min(...xs)) / (width - 2 * edge), (Math.max(...ys) - Math.min(...ys)) / (height - 2 * edge), 0.004);
  const middle = [(Math.max(...xs) + Math.min(...xs)) / 2, (Math.max(...ys) + Math.min(...ys)) / 2];
  mapScale = point => [width / 2 + (point[0] - middle[0]) / span, height / 2 - (point[1] - middle[1]) / span];
  const parts = [];
  const way = map.path.map(point => mapScale(point.position).map(value => value.toFixed(1)).join(',')).join(' ');
  parts.push(draw('polyline', { points: way, class: 'way' }));
  parts.push(draw('polyline', { id: 'walked', points: '', class: 'way' }));
  const shapes = map.landmarks.map(one => {
    const [x, y] = mapScale(one.position);
    const [w, h] = one.size ? one.size.map(value => Math.max(3, value / span)) : [6, 6];
    const text = one.label + (one.status === 'gone' ? ' (gone)' : '');
    const group = draw('g', { 'data-from': one.from_t }, draw('title', {}, text));
    if (one.size) group.append(draw('rect', { x: x - w / 2, y: y - h / 2, width: w, height: h, class: 'thing' }));
    else group.append(draw('circle', { cx: x, cy: y, r: 3, class: 'thing' }));
    parts.push(group);
    const half = [Math.min(w / 2, 40), Math.min(h / 2, 40)];
    return { one, x, y, half, text, left: x - half[0], right: x + half[0], top: y - half[1], bottom: y + half[1] };
  });
  // Names stand above all shapes; one that has no room is left out, and shows under the pointer.
  const names = [];
  for (const shape of [...shapes].sort((a, b) => a.text.length - b.text.length)) {
    const place = labelPlace(shape, textWidth(shape.text), shapes, names, width, height);
    if (!place) continue;
    names.push(place);
    const group = draw('g', { 'data-from': shape.one.from_t });
    if (place.isFar) group.append(draw('path', { d: `M${shape.x} ${shape.y}L${Math.min(place.right, Math.max(place.left, shape.x))} ${Math.min(place.bottom, Math.max(place.top, shape.y))}`, class: 'leader' }));
    group.append(draw('text', { x: place.left, y: place.bottom - 2 }, shape.text));
    parts.push(group);
  }
  const unnamed = shapes.length - names.length;
  if (unnamed) parts.push(draw('text', { x: width - 8, y: 242, 'text-anchor': 'end' }, `${unnamed} more under the pointer`));
  const metre = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100].filter(value => value / span <= 90).pop() || 0.1;
  if (map.is_metric) parts.push(draw('path', { d: `M10 242h${metre / span}`, class: 'scale' }));
  parts.push(draw('text', { x: 10, y: 238 }, map.is_metric ? `${metre} m` : 'no metres known'));
  parts.push(draw('path', { id: 'pose', d: 'M9 0 -5 5 -2 0 -5 -5Z' }));
  byId('map').replaceChildren(...parts);
  byId('map').setAttribute('aria-label', `Map from above: ${map.landmarks.map(one => one.label).join(', ') || 'the way of the camera'}`);
}

const canvas = document.createElement('canvas').getContext('2d');

function textWidth(text) {
  canvas.font = `10px ${getComputedStyle(document.body).fontFamily}`;
  return canvas.measureText(text).width + 2;
}

const overlap = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;

/* Where the name of a shape stands: apart from all other names, and over few shapes; null: nowhere. */
function labelPlace(shape, length, shapes, names, width, height) {
  const { x, y, half } = shape;
  let best = null;
  for (const far of [0, 12, 26]) {
    const [right, left, above, below] = [half[0] + 3 + far, -length - half[0] - 3 - far, -half[1] - 4 - far, half[1] + 11 + far];
    for (const [dx, dy] of [[right, 3], [left, 3], [-length / 2, above], [-length / 2, below], [right, below], [left, below], [right, above], [left, above]]) {
      const from = x + dx, base = y + dy;
      if (from < 2 || from + length > width - 2 || base < 10 || base > height - 18) continue;
      const box = { left: from, right: from + length, top: base - 9, bottom: base + 2, isFar: far > 0 };
      if (names.some(one => overlap(one, box))) continue;
      box.cost = far / 10 + shapes.filter(one => one !== shape && overlap(one, box)).length;
      if (!best || box.cost < best.cost) best = box;
    }
  }
  return best;
}

function showPose() {
  const map = state.rec?.map;
  if (!map?.path.length || !mapScale) return;
  const times = map.path.map(point => point.t), n = nearest(times, state.t);
  const [x, y] = mapScale(map.path[n].position);
  byId('pose').setAttribute('transform', `translate(${x} ${y}) rotate(${(-180 * map.path[n].yaw_rad) / Math.PI})`);
  byId('walked').setAttribute('points', map.path.slice(0, n + 1).map(point => mapScale(point.position).join(',')).join(' '));
  for (const group of byId('map').querySelectorAll('[data-from]')) {
    group.setAttribute('opacity', Number(group.dataset.from) <= state.t + 0.01 ? 1 : 0.25);
  }
}

/* What another perceiver says: recorded and replayed side by side, the most differences first. */
function showMoments() {
  const replay = state.rec.replay;
  byId('replay').hidden = !replay;
  if (!replay) return;
  const differ = replay.moments.filter(one => one.differences).length;
  byId('replay-title').textContent = `Keyframes, perceived again by ${replay.perceiver}: ${differ} of ${replay.moments.length} differ`;
  byId('moments').replaceChildren(...replay.moments.map(one => make('li', { className: one.differences ? '' : 'same' },
    deltaButton(one.camera, one.t, numberAt(one.camera, one.t), differences(one)), sides(one))));
}

function differences(one) {
  const chips = [
    ...one.added.map(text => make('em', { className: 'chip added' }, `+ ${text}`)),
    ...one.gone.map(text => make('em', { className: 'chip gone' }, `− ${text}`)),
    ...one.renamed.map(([before, after]) => make('em', { className: 'chip renamed' }, `${before} → ${after}`)),
    ...(one.action_differs ? [make('em', { className: 'chip renamed' }, 'other motion')] : []),
  ];
  return make('span', { className: 'chips' }, ...(chips.length ? chips : [one.differences ? 'one of them failed' : 'the same things']));
}

const wordsOf = delta => [delta.action, delta.change, delta.error].filter(Boolean).join('. ').replace('..', '.') || 'nothing';

function sides(one) {
  const column = (title, delta) => make('div', {}, make('small', {}, title), make('p', {}, delta ? wordsOf(delta) : 'was not perceived'));
  return make('div', { className: 'columns' }, column('Recorded', one.recorded), column('Replayed', one.replayed));
}

/* Questions. */
function showQuestions() {
  const shown = state.questions;
  const list = byId('questions');
  const focused = document.activeElement?.closest?.('#questions li')?.dataset.id;
  list.replaceChildren(...shown.map(q => {
    const own = mine(q), words = own ? 'labelled by me' : odd(q) ? 'disagreement' : 'not labelled by me';
    return make('li', { 'data-id': q.id }, make('button', {
      type: 'button', className: q.is_hit ? '' : 'miss', 'aria-current': q.id === state.current ? 'true' : null,
      onclick: () => choose(q.id),
    }, make('i', { className: kindOf(q), role: 'img', 'aria-label': words }), make('time', {}, seconds(q.t)), make('span', {}, q.text, ' ', make('small', {}, q.sentence || (q.answer ?? '')))));
  }));
  if (!shown.length) list.append(make('li', {}, make('p', { className: 'legend' }, 'No questions yet.')));
  if (focused) [...list.children].find(row => row.dataset.id === focused)?.firstChild.focus();
}

/* Scroll a box so that something in it shows, and nothing else: not the page of a phone. */
function reveal(box, node) {
  if (!node) return;
  const [outer, inner] = [box.getBoundingClientRect(), node.getBoundingClientRect()];
  if (inner.top < outer.top) box.scrollTop -= outer.top - inner.top;
  else if (inner.bottom > outer.bottom) box.scrollTop += inner.bottom - outer.bottom;
}

function choose(id, t) {
  state.current = id;
  const q = state.questions.find(one => one.id === id);
  showQuestions();
  drawMarks();
  showQuestion();
  byId('question').scrollTop = 0;
  reveal(byId('others'), byId('questions').querySelector('[aria-current]'));
  setTime(t !== undefined ? t : q ? q.t : 0);
}

const currentQuestion = () => state.questions.find(q => q.id === state.current);

function showQuestion() {
  const q = currentQuestion();
  const box = byId('asked');
  const active = box.contains(document.activeElement) ? document.activeElement.dataset.name : null;
  if (!q) {
    box.replaceChildren(make('h2', {}, 'No question is chosen'), make('p', {}, 'This recording has no recorded answers.'));
    return;
  }
  const own = mine(q);
  const number = state.questions.indexOf(q) + 1;
  const parts = [
    make('div', { className: 'place' }, make('span', {}, `Question ${number} of ${state.questions.length}, at ${seconds(q.t)}${q.origin === 'written' ? `, written by ${q.author}` : q.origin === 'row' ? ', from a row' : ''}`),
      button('next', 'Next', 'N', next)),
    make('h2', {}, q.text),
  ];
  if (q.is_disputed) parts.push(make('p', { className: 'warn' }, `${q.answer} — but ${q.opinions.filter(one => !one.agrees).map(one => `${one.by} says: ${one.solution}`).join('; ')}`));
  if (q.people_differ) parts.push(make('p', { className: 'warn' }, `People differ: ${q.labels.map(label => `${label.who}: ${label.after ?? 'wrong'}`).join('; ')}`));
  if (TURNS.test([q.text, q.answer, q.sentence, ...q.options].join())) parts.push(make('p', { className: 'warn' }, 'A text has characters that turn its direction: it may read otherwise than it is.'));
  if (q.options.length) parts.push(make('ol', { className: 'options', 'aria-label': 'Options' }, ...q.options.map((option, n) => optionRow(q, own, option, n))));
  const row = make('div', { className: 'row' });
  row.append(button('right', 'Right', 'Space', () => label('right'), q.answer === null, own?.kind === 'right'));
  row.append(button('unanswerable', 'Unanswerable', 'U', () => label('unanswerable'), false, own?.kind === 'unanswerable'));
  row.append(button('wrong', 'Wrong', '', () => label('wrong'), q.answer === null, own?.kind === 'wrong'));
  row.append(button('undo', 'Undo', 'Z', undo, !own && !state.given.length));
  if (!q.options.length) {
    const input = make('input', { 'aria-label': 'The right answer', placeholder: 'the right answer', 'data-name': 'correction', maxlength: 400 });
    row.append(make('form', { onsubmit: event => { event.preventDefault(); if (input.value.trim()) { label('correct', input.value.trim()); leaveInput(); } } }, input, make('button', {}, 'Correct')));
  }
  const used = evidenceOf(q);
  if (!saved) parts.push(row);
  parts.push(facts(q, own));
  if (used.length) parts.push(make('h3', {}, 'Rests on these keyframes'), make('ol', { className: 'evidence' }, ...used.map(position => make('li', {}, thumbnail(position)))));
  if (q.replayed.length) parts.push(...replayedAnswers(q));
  else if (q.think) parts.push(make('h3', {}, 'Reasoning'), make('p', { className: 'think' }, ...withLinks(q)));
  if (q.calls.length) parts.push(make('h3', {}, 'Computed by tools'), make('ol', { className: 'calls' }, ...q.calls.map(call => callRow(q, call))));
  if (q.rejected.length) {
    parts.push(make('h3', {}, 'Rejected completions'), make('ol', { className: 'calls' }, ...q.rejected.map(one => make('li', {},
      make('bdi', {}, ...withLinks(q, one.reason)), make('small', {}, ' ', make('bdi', {}, one.model)), make('pre', { dir: 'auto' }, one.completion)))));
  }
  if (q.focus.length) {
    parts.push(make('h3', {}, 'Looked at again'), make('ol', { className: 'deltas' }, ...q.focus.map(look => make('li', {}, deltaButton(look.camera, look.t, numberAt(look.camera, look.t), look.text || 'nothing')))));
  }
  if (q.deltas.length) {
    parts.push(make('h3', {}, q.origin === 'row' ? 'Seen until then' : `Semantic deltas that it used (${q.deltas.length})`), make('ol', { className: 'deltas' }, ...q.deltas.map(position => {
      const delta = state.rec.deltas[position];
      const again = state.rec.replay?.moments.find(one => one.position === position);
      const head = `[${position + 1}]`;
      if (again) return make('li', { className: again.differences ? '' : 'same' }, deltaButton(delta.camera, delta.t, head, differences(again), position), sides(again));
      return make('li', {}, deltaButton(delta.camera, delta.t, head, wordsOf(delta), position));
    })));
  }
  if (q.prompt) parts.push(make('details', {}, make('summary', {}, 'Prompt, as it was sent'), make('pre', {}, q.prompt)));
  box.replaceChildren(...parts);
  if (active) [...box.querySelectorAll('[data-name]')].find(node => node.dataset.name === active)?.focus();
  markDelta();
}

/* What a tool was called with, what it gave, and what that rests on. */
function callRow(q, call) {
  const from = [...call.observations.map(number => `[${number}]`), ...call.landmark_ids.map(id => `landmark ${id}`)].join(' ');
  return make('li', {}, make('code', {}, make('bdi', {}, call.tool), '(', ...call.arguments.flatMap((one, n) => [n ? '; ' : '', make('bdi', {}, one)]), ')'),
    ' ', make('bdi', {}, call.text || [call.value, call.unit].filter(Boolean).join(' ') || 'not known'), from ? make('small', {}, ' ', ...withLinks(q, from)) : null);
}

function replayedAnswers(q) {
  const column = (title, answer, isOther, ...think) => make('div', {},
    make('small', {}, title), make('p', { className: isOther ? 'other' : '' }, make('b', {}, answer)), make('p', { className: 'think' }, ...think));
  return [make('h3', {}, 'Answers and reasoning'), make('div', { className: 'columns' },
    column(`Recorded: ${q.model || 'no model'}`, q.answer ?? 'no answer', false, ...(q.think ? withLinks(q) : [])),
    ...q.replayed.map(one => column(one.by, one.answer, one.is_other, one.error || one.think)))];
}

function button(name, text, key, action, isOff, isPressed) {
  return make('button', { type: 'button', 'data-name': name, onclick: action, disabled: Boolean(isOff), 'aria-pressed': isPressed === undefined ? null : String(Boolean(isPressed)), className: isPressed ? 'pressed' : '' },
    text, key ? ' ' : '', key ? make('kbd', {}, key) : '');
}

function optionRow(q, own, option, n) {
  const letter = String.fromCharCode(65 + n);
  const tags = [];
  if (q.answer === option) tags.push(make('em', { className: 'tag answer' }, q.origin === 'row' ? 'solution' : 'answer'));
  for (const opinion of q.opinions) if (opinion.solution === option) tags.push(make('em', { className: 'tag proof', title: opinion.by }, tagOf(opinion)));
  for (const one of q.labels) if (one.after === option) tags.push(make('em', { className: one.who === state.who ? 'tag mine' : 'tag other' }, one.who === state.who ? 'my label' : one.who));
  return make('li', {}, make('button', { type: 'button', 'data-name': `option-${letter}`, 'aria-pressed': String(own?.after === option), onclick: () => label('correct', letter) }, make('kbd', {}, letter), make('span', {}, option), ...tags));
}

/* A map is what was perceived; poses and true layouts prove. */
function tagOf(opinion) {
  if (opinion.by.endsWith('(map)')) return 'by the map';
  if (opinion.by.endsWith(', in the shadow')) return 'in the shadow';
  if (/, replayed( with .*)?$/.test(opinion.by)) return 'replayed';
  return opinion.by.startsWith('the recording') || opinion.by.startsWith('a row') ? 'proven' : opinion.by;
}

function facts(q, own) {
  const list = make('dl', { className: 'facts' });
  const add = (name, ...value) => list.append(make('dt', {}, name), make('dd', {}, ...value));
  if (own) add('My label', `${{ right: 'right', correct: 'corrected', wrong: 'wrong', unanswerable: 'unanswerable', question: 'solution' }[own.kind]}${own.after ? `: ${own.after}` : ''}, ${new Date(1000 * own.when_s).toLocaleString()}`);
  for (const one of q.labels) if (one.who !== state.who) add(one.who, `${one.kind}${one.after ? `: ${one.after}` : ''}`);
  add(q.origin === 'row' ? 'Solution' : 'Answer', make('bdi', {}, q.answer ?? (q.origin === 'written' ? 'none yet' : 'refused: no answer')));
  if (q.sentence) add('In a sentence', make('bdi', {}, ...withLinks(q, q.sentence)));
  if (q.check) add('Check', make('span', { className: { verified: 'fresh', unsupported: 'refused' }[q.check] || '' }, q.check), q.check_reason ? ': ' : '', make('bdi', {}, ...withLinks(q, q.check_reason)));
  for (const opinion of q.opinions) if (!q.replayed.some(one => one.by === opinion.by)) add(opinion.by, `${opinion.solution} ${opinion.agrees ? '✓ the same' : '✗ another'}`);
  if (q.confidence !== null) add('Confidence', `${(100 * q.confidence).toFixed(0)} %`);
  if (q.freshness) add('Freshness', make('span', { className: { FRESH: 'fresh', REFUSED: 'refused' }[q.freshness] || 'stale' }, q.freshness.toLowerCase()), q.age_s === null ? '' : `, observed ${seconds(q.age_s)} before`);
  if (q.model) add('Model', q.model, q.rung ? ` (${q.rung.toLowerCase()})` : '', q.digest ? make('span', { title: q.digest }, ` ${q.digest.slice(0, 19)}…`) : '');
  return list;
}

/* "[5]" in a reasoning is the fifth delta of its prompt, "[1-4]" are the first four, merged. They
   are shown with the numbers that keyframes have in the recording. */
function withLinks(q, text = q.think) {
  return text.split(/(\[\d+(?:-\d+)?\])/).map(part => {
    const numbers = /^\[(\d+)(?:-(\d+))?\]$/.exec(part);
    const position = numbers ? positionOf(q, Number(numbers[1])) : undefined;
    if (position === undefined) return part;
    const delta = state.rec.deltas[position];
    const last = numbers[2] ? `-${position + 1 + Number(numbers[2]) - Number(numbers[1])}` : '';
    return make('button', { type: 'button', title: `${seconds(delta.t)}: ${delta.change}`, onclick: () => showDelta(position) }, `[${position + 1}${last}]`);
  });
}

function positionOf(q, number) {
  const position = q.deltas.length ? q.deltas[number - q.first_number] : number - 1;
  return state.rec.deltas[position] ? position : undefined;
}

/* The keyframes that an answer names, and those that its tools computed from. */
function evidenceOf(q) {
  const named = [...`${q.think} ${q.sentence} ${q.check_reason}`.matchAll(/\[(\d+)\]/g)].map(match => Number(match[1]));
  const numbers = [...named, ...q.calls.flatMap(call => call.observations)];
  const positions = new Set(numbers.map(number => positionOf(q, number)));
  return [...positions].filter(position => position !== undefined).sort((a, b) => a - b);
}

/* What a keyframe is called: by its place among all of them. */
function numberAt(camera, t) {
  const n = state.rec.deltas.findIndex(delta => delta.camera === camera && Math.abs(delta.t - t) < 1e-4);
  return n < 0 ? 'keyframe' : `[${n + 1}]`;
}

function showDelta(position) {
  setTime(state.rec.deltas[position].t);
  reveal(byId('question'), byId('asked').querySelector(`.deltas [data-position="${position}"]`));
}

function deltaButton(camera, t, head, text, position) {
  return make('button', { type: 'button', 'data-position': position, 'data-t': t, onclick: () => setTime(t) },
    make('img', { src: pictureAt(camera, t), alt: '', loading: 'lazy' }), make('span', {}, make('small', {}, `${head}, ${seconds(t)}`), make('br'), text));
}

function pictureAt(camera, t) {
  const cameras = state.rec.film.cameras;
  const name = cameras[camera] ? camera : Object.keys(cameras)[0];
  return name ? pictureOf(name, nearest(cameras[name], t)) : null;
}

function markDelta() {
  const strip = byId('strip'), used = currentQuestion() ? evidenceOf(currentQuestion()) : [];
  for (const one of strip.querySelectorAll('button')) one.classList.toggle('used', used.includes(Number(one.dataset.position)));
  for (const box of [strip, ...byId('asked').querySelectorAll('.deltas')]) {
    const buttons = [...box.querySelectorAll('[data-t]')];
    const now = buttons.filter(one => Number(one.dataset.t) <= state.t + 0.01).pop();
    for (const one of buttons) one.classList.toggle('at', one === now);
    if (box === strip && now) strip.scrollLeft = now.offsetLeft - (strip.clientWidth - now.clientWidth) / 2;
  }
}

/* What a person says. */
const newId = () => (crypto.randomUUID ? crypto.randomUUID() : Array.from(crypto.getRandomValues(new Uint8Array(16)), byte => byte.toString(16).padStart(2, '0')).join(''));

function label(kind, after) {
  const q = currentQuestion();
  if (!q || !whoIsKnown()) return;
  if (kind === 'right' && q.answer === null) { say('there is no answer that could be right', true); return; }
  const id = newId();
  state.given.push({ e: state.key, id, question_id: q.id });
  const words = { right: 'saved: right', unanswerable: 'saved: unanswerable', wrong: 'saved: wrong', correct: `saved: ${after} is right` };
  give('/api/label', { e: state.key, id, question_id: q.id, kind, who: state.who, after, filter: state.filter }, words[kind]);
}

async function undo() {
  if (!whoIsKnown() || waiting().length) return;
  let last = state.given.pop();
  const q = currentQuestion(), own = q && mine(q);
  if (!last && own) last = { e: state.key, id: own.id, question_id: q.id };
  if (!last) { say('there is nothing to take back', true); return; }
  if (last.e !== state.key) await open(last.e, { question: last.question_id });
  else if (last.question_id !== state.current && state.questions.some(one => one.id === last.question_id)) choose(last.question_id);
  give('/api/label', { e: last.e, id: newId(), question_id: last.question_id, kind: 'undo', undoes: last.id, who: state.who, filter: state.filter }, 'taken back');
}

function whoIsKnown() {
  if (state.who) return true;
  say('who are you? Give a name first', true);
  byId('who').focus();
  return false;
}

function leaveInput() { byId('question').focus({ preventScroll: true }); }

/* To the next question of the filter that I have not labelled, in this recording or a later one. */
async function next() {
  if (!state.rec) return;
  const at = state.questions.findIndex(q => q.id === state.current);
  const left = state.questions.slice(at + 1).filter(q => q.is_hit);
  const target = left.find(q => !mine(q)) || left[0];
  if (target) { choose(target.id); leaveInput(); return; }
  await loadList();
  const place = state.list.findIndex(card => card.key === state.key);
  const later = [...state.list.slice(place + 1), ...state.list.slice(0, Math.max(0, place))];
  const card = later.find(one => one.hits > one.labelled) || later.find(one => one.hits);
  if (card) { await open(card.key, { hit: true }); leaveInput(); return; }
  say(state.filter === 'all' ? 'this was the last question' : 'no other question of this filter');
}

function write(isAsked) {
  const text = byId('new-text').value.trim();
  if (!state.rec || !text || !(isAsked || whoIsKnown())) return;
  const options = byId('new-options').value.split('\n').map(line => line.trim()).filter(Boolean);
  const id = newId();
  state.given.push({ e: state.key, id, question_id: id });
  const t = isAsked && !byId('new-now').checked ? state.rec.duration_s : state.t;
  const body = { e: state.key, id, who: state.who || 'visitor', text, options, t, solution: byId('new-solution').value, ask: isAsked, filter: state.filter };
  byId('new-ask').disabled = isAsked;
  give('/api/question', body, isAsked ? 'answered and saved' : 'question saved').then(() => {
    byId('new-ask').disabled = false;
    if (waiting().length || state.refused === id) return;
    byId('new').reset();
    byId('ask').open = false;
    leaveInput();
  });
  say(isAsked ? 'looking for the answer…' : 'saving…');
}

/* Keys; none where somebody writes. */
function onKey(event) {
  const at = event.target;
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || byId('keys').open) return;
  if (at.matches('input:not([type=range]), textarea, select') || at.isContentEditable) return;
  const isButton = at.matches('button, summary, a');
  if (isButton && (event.key === ' ' || event.key === 'Enter')) return;
  if (at.matches('[type=range]') && event.key.startsWith('Arrow')) return;
  const action = actionOf(event);
  if (!action) return;
  event.preventDefault();
  if (!event.repeat || event.key.startsWith('Arrow')) action();
}

function actionOf(event) {
  const letter = event.key.toUpperCase();
  const others = { ' ': () => label('right'), ArrowLeft: () => stepPicture(-1), ArrowRight: () => stepPicture(1), '?': () => byId('keys').showModal() };
  if (others[event.key]) return others[event.key];
  const q = currentQuestion();
  const isOption = q && /^[A-Z]$/.test(letter) && letter.charCodeAt(0) - 65 < q.options.length;
  const commands = { U: () => label('unanswerable'), N: next, Z: undo, P: togglePlay };
  if (commands[letter] && !(isOption && event.shiftKey)) return commands[letter];
  return isOption ? () => label('correct', letter) : null;
}

/* The address says where one is. */
let addressTimer = 0;

function keepAddress() {
  clearTimeout(addressTimer);
  addressTimer = setTimeout(() => {
    const values = { e: state.key, t: state.t.toFixed(2) };
    if (state.current) values.q = state.current;
    if (state.filter !== 'all') values.filter = state.filter;
    if (!saved) history.replaceState(null, '', `/?${query(values)}`);
  }, 150);
}

async function begin() {
  const address = new URLSearchParams(location.search);
  document.title = `Review: ${site.title}`;
  byId('title').textContent = site.title;
  document.body.classList.toggle('saved', Boolean(saved));
  byId('filter').replaceChildren(...Object.entries(site.filters).map(([name, text]) => make('option', { value: name }, text)));
  state.who = (!saved && localStorage.getItem('embodied-r-who')) || site.who;
  byId('who').value = state.who;
  const filter = address.get('filter');
  if (filter && [...byId('filter').options].some(option => option.value === filter)) state.filter = filter;
  byId('filter').value = state.filter;
  byId('new-ask').hidden = !site.can_ask;
  byId('new').hidden = Boolean(saved);
  const reopen = () => { if (state.key) { loadList(); refresh(); } };
  byId('who').addEventListener('change', () => { state.who = byId('who').value.trim(); localStorage.setItem('embodied-r-who', state.who); reopen(); });
  byId('filter').addEventListener('change', () => { state.filter = byId('filter').value; state.offset = 0; reopen(); keepAddress(); });
  byId('time').addEventListener('input', () => setTime(Number(byId('time').value)));
  byId('play').addEventListener('click', togglePlay);
  byId('help').addEventListener('click', () => byId('keys').showModal());
  byId('more').addEventListener('click', () => { state.offset += state.list.length; loadList(); });
  byId('new').addEventListener('submit', event => { event.preventDefault(); write(site.can_ask); });
  byId('new-write').addEventListener('click', () => write(false));
  document.addEventListener('keydown', onKey);
  // After a click with the mouse, keys are commands again; who uses the keyboard stays at the button.
  document.addEventListener('click', event => {
    if (event.detail && event.target.closest('#asked button, #questions button, #strip button, #recordings button, #play')) leaveInput();
  });
  if (!saved && waiting().length) await sendWaiting();
  await loadList();
  const key = address.get('e') || state.list[0]?.key;
  const t = Number(address.get('t'));
  if (key) open(key, { question: address.get('q'), t: address.has('t') && Number.isFinite(t) ? t : undefined });
}

async function refresh() {
  try {
    takeQuestions(await get('/api/questions', { e: state.key, filter: state.filter, who: state.who }));
  } catch (error) { say(error.message, true); }
}

begin();
