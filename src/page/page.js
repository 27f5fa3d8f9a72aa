'use strict';

// The status page: asks the gateway for JSON every few seconds, and shows it.
// Whatever comes from there is text: it gets in by textContent alone.

const EVERY = 2000;             // ms between two questions
const PATIENCE = 10000;         // ms for an answer
const LIMIT = 50;               // locks on a page
const WINDOW = 300000;          // ms that the chart shows,
const BUCKET = 5000;            // and of one point in it
const SHOWN = 8000;             // ms that a message stays

const address = location.pathname.replace(/\/$/, '');
const $ = (id) => document.getElementById(id);

const state = {
  data: null,                   // the last answer,
  at: 0,                        // and when it came (performance.now())
  zone: null,                   // the name of the zone that is shown
  cursors: [''],                // of the pages up to this one
  paused: false,
  lost: false,
  asking: null,                 // AbortController of the question under way
  timer: 0,
  history: new Map(),           // zone name: [{t, acquired, busy, released}]
  rows: new Map(),              // token: what is in the table of it
};


// Words

const count = (n) => n.toLocaleString('en');

const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : many}`;

function duration(ms) {
  const s = Math.floor(ms / 1000);

  if (s < 60) {
    return `${s} s`;
  }

  if (s < 3600) {
    return `${Math.floor(s / 60)} min ${s % 60} s`;
  }

  if (s < 86400) {
    return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  }

  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

function bytes(n) {
  const units = ['bytes', 'kB', 'MB', 'GB'];
  let i = 0;

  while (n >= 1024 && i < units.length - 1) {
    n /= 1024;
    i++;
  }

  return `${n >= 100 ? Math.round(n) : Number(n.toFixed(1))}\u00a0${units[i]}`;
}

// A key among words: what it does to the direction of text ends with it.

const isolated = (key) => `\u2068${key}\u2069`;

const clock = (ms) => new Date(ms).toLocaleTimeString('en-GB');

const day = (ms) => new Date(ms).toLocaleDateString(
  'en-GB', { day: 'numeric', month: 'long', year: 'numeric' });

// A time alone is one of today.

const moment = (ms, now) => day(ms) === day(now) ? clock(ms)
                            : `${clock(ms)} on ${day(ms)}`;


// Elements

function element(name, className, ...children) {
  const e = document.createElement(name);

  e.className = className;
  e.append(...children);

  return e;
}

function cell(className, ...children) {
  const e = element('div', className, ...children);

  e.setAttribute('role', 'cell');

  return e;
}

// Written only when it changes: a selection, and a screen reader's place, stay.

function text(e, value) {
  if (e.textContent !== value) {
    e.textContent = value;
  }
}

// [name, value, true if it is a warning] becomes a list of definitions.

function definitions(list, items) {
  while (list.children.length > items.length) {
    list.lastChild.remove();
  }

  items.forEach(([name, value, warn], i) => {
    if (list.children.length <= i) {
      list.append(element('div', '', element('dt', ''), element('dd', '')));
    }

    const [dt, dd] = list.children[i].children;

    text(dt, name);
    text(dd, typeof value === 'number' ? count(value) : value);
    dd.className = warn ? 'warn' : '';
  });
}

function bar(e, part) {
  e.style.setProperty('--part', Math.max(0, Math.min(1, part)).toFixed(4));
}

let saidTimer = 0;

function say(message) {
  $('said').textContent = message;
  clearTimeout(saidTimer);
  saidTimer = setTimeout(() => { $('said').textContent = ''; }, SHOWN);
}


// Asking

function question() {
  const fields = [['format', 'json']];

  if (state.zone !== null) {
    fields.push(['zone', state.zone],
                ['limit', LIMIT],
                ['cursor', state.cursors[state.cursors.length - 1]],
                ['key', $('f-key').value],
                ['operation', $('f-operation').value],
                ['state', $('f-state').value]);
  }

  return `${location.pathname}?`
         + fields.filter(([, value]) => value !== '')
                 .map(([name, value]) => `${name}=${encodeURIComponent(value)}`)
                 .join('&');
}

// One question at a time: a new one takes the place of that under way.

async function ask() {
  const began = performance.now();
  const control = new AbortController();
  const patience = setTimeout(() => control.abort(), PATIENCE);
  let again = EVERY;

  clearTimeout(state.timer);
  state.asking?.abort();
  state.asking = control;

  try {
    const response = await fetch(question(), { signal: control.signal });

    if (response.status === 404 && state.zone !== null) {
      state.zone = null;        // a reload took it away
      again = 0;

    } else {
      if (!response.ok) {
        throw new Error(`it answers ${response.status}`);
      }

      const answer = await response.json();

      if (state.asking !== control) {
        return;
      }

      found();
      again = take(answer.data) ? again : 0;
    }

  } catch (error) {
    if (state.asking !== control) {
      return;
    }

    lost(control.signal.aborted ? 'it does not answer'
         : error instanceof TypeError ? 'it cannot be reached'
         : error.message);

  } finally {
    clearTimeout(patience);
  }

  // An answer that takes long is a lot of work there: ask more rarely.

  if (again) {
    again = Math.max(again, 4 * (performance.now() - began));
  }

  if (!state.paused && !document.hidden) {
    state.timer = setTimeout(ask, again);
  }
}

function lost(why) {
  const since = state.data
    ? ` What is below is from ${moment(state.data.time, Date.now())}.` : '';

  state.lost = true;
  document.body.classList.add('lost');
  $('live').className = 'live lost';
  text($('asof'), 'lost');

  // once for each loss: a reason that changes is not worth a second alarm
  if (!$('alert').firstChild) {
    $('alert').append(element('p', 'alert',
                              `The gateway is lost: ${why}.${since}`
                              + ' Asking again every few seconds.'));
  }
}

function found() {
  if (state.lost) {
    state.lost = false;
    document.body.classList.remove('lost');
    $('alert').replaceChildren();
    say('The gateway is back.');
  }
}

// The zone that the address names. Somebody may have typed it, unescaped.

function named() {
  const name = location.hash.slice(1);

  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

// The zone to show: that one, or the first; null: there is none.

function wanted(zones) {
  const names = zones.map((zone) => zone.name);

  return names.includes(named()) ? named() : names[0] ?? null;
}

// Takes an answer in; false: it has to be asked again, for a list of locks.

function take(data) {
  state.data = data;
  state.at = performance.now();

  remember(data);

  if (!data.zones.some((zone) => zone.name === state.zone)) {
    state.zone = wanted(data.zones);
    state.cursors = [''];
  }

  show();

  if (state.zone === null) {
    return true;
  }

  // The page that is shown has gone: its locks were the last ones.

  if (data.list && !data.list.locks.length && state.cursors.length > 1) {
    state.cursors.pop();
    return false;
  }

  return data.list !== undefined;
}

function remember(data) {
  for (const zone of data.zones) {
    const { acquired, busy, released } = zone.counters;
    let history = state.history.get(zone.name);
    const last = history?.at(-1);

    // Counters go back when the gateway was restarted.

    if (!last || acquired < last.acquired || busy < last.busy
        || released < last.released)
    {
      history = [];
      state.history.set(zone.name, history);
    }

    history.push({ t: data.time, acquired, busy, released });

    while (history.length > 2
           && history[1].t < data.time - WINDOW - BUCKET)
    {
      history.shift();
    }
  }
}


// Showing

function show() {
  const { data } = state;
  const zone = data.zones.find(({ name }) => name === state.zone);
  const held = data.zones.reduce((n, { locks }) => n + locks.held, 0);
  const stuck = data.zones.reduce((n, { locks }) => n + locks.stuck, 0);

  document.title = `${held} held${stuck ? `, ${stuck} stuck` : ''} - vibelock`;

  $('live').className = state.paused ? 'live' : 'live on';
  text($('asof'), `${state.paused ? 'paused' : 'live'}, ${clock(data.time)}`);

  showZones(data.zones);

  for (const id of ['cards', 'locks', 'counters-card']) {
    $(id).hidden = !zone;
  }

  if (!zone) {
    return;
  }

  showHeld(zone);
  showMemory(zone);
  showChart(zone);
  showCounters(zone);
  showBus(zone.bus);
  showRegistry(data.registry, data.time);

  if (data.list && data.list.zone === zone.name) {
    showList(data.list, data.breakable);
  }
}

function showZones(zones) {
  const nav = $('zones');

  nav.hidden = zones.length < 2;

  while (nav.children.length > zones.length) {
    nav.lastChild.remove();
  }

  zones.forEach((zone, i) => {
    if (nav.children.length <= i) {
      const button = element('button', '', element('b', ''), ' ',
                             element('span', ''));
      button.type = 'button';
      button.addEventListener('click', () => choose(button.dataset.zone));
      nav.append(button);
    }

    const button = nav.children[i];

    button.dataset.zone = zone.name;
    text(button.children[0], zone.name);
    text(button.children[1], zone.locks.stuck
         ? `${count(zone.locks.held)} held, ${count(zone.locks.stuck)} stuck`
         : `${count(zone.locks.held)} held`);

    if (zone.name === state.zone) {
      button.setAttribute('aria-current', 'true');
    } else {
      button.removeAttribute('aria-current');
    }
  });
}

function showHeld({ locks }) {
  text($('held'), count(locks.held));
  text($('held-states'), locks.held === 0 ? 'Nothing runs, nothing is stuck.'
       : `${count(locks.running)} running, ${count(locks.stuck)} stuck`);

  const items = locks.operations
    .filter((op) => op.running + op.stuck)
    .map((op) => [op.operation, op.running + op.stuck]);

  if (locks.oldestRunningMs !== null) {
    items.push(['oldest running', duration(locks.oldestRunningMs)]);
  }

  if (locks.oldestStuckMs !== null) {
    items.push(['oldest stuck', duration(locks.oldestStuckMs), true]);
  }

  definitions($('operations'), items);

  showOperations(locks.operations.map((op) => op.operation));
}

// The choices of the filter.

function showOperations(names) {
  const select = $('f-operation');
  const known = Array.from(select.options, (option) => option.value);

  for (const name of names) {
    if (!known.includes(name)) {
      select.append(new Option(name, name));
    }
  }
}

function showMemory({ memory }) {
  const part = memory.cells ? memory.cellsUsed / memory.cells : 0;
  const percent = 100 * part;

  text($('fill'), `${percent > 0 && percent < 1 ? '<1' : Math.round(percent)}`
                  + ' %');
  bar($('fill-bar'), part);
  $('fill-bar').classList.toggle('low', part > 0.9);
  text($('memory'), `${count(memory.cellsUsed)} of ${count(memory.cells)}`
                    + ` cells of a zone of ${bytes(memory.bytes)}`);
}

function showChart({ name }) {
  const history = state.history.get(name);
  const end = history.at(-1).t;
  const last = WINDOW / BUCKET - 1;
  const place = (t) => last - Math.floor(end / BUCKET)
                            + Math.floor(t / BUCKET);
  const first = Math.max(0, place(history[0].t));
  const series = {};
  let peak = 0;

  for (const kind of ['acquired', 'released', 'busy']) {
    const values = new Array(last + 1).fill(0);

    for (let i = 1; i < history.length; i++) {
      if (place(history[i].t) >= 0) {
        values[place(history[i].t)] += history[i][kind] - history[i - 1][kind];
      }
    }

    series[kind] = values;
    peak = Math.max(peak, ...values);

    text($(`sum-${kind}`), count(values.reduce((a, b) => a + b, 0)));
  }

  text($('peak'), peak ? `${count(peak)} in ${BUCKET / 1000} s` : '');

  // Nobody knows what was before the page was opened: no line there.

  for (const [kind, values] of Object.entries(series)) {
    $(`line-${kind}`).setAttribute('points', values
      .map((value, i) => [300 * i / last,
                          99 - 98 * (peak ? value / peak : 0)].join(','))
      .slice(first).join(' '));
  }
}

function showCounters({ counters: n, bus }) {
  const dry = n.dryRun.busy + n.dryRun.full + n.dryRun.denied
              + n.dryRun.invalid;

  definitions($('counters'), [
    ['acquired', n.acquired],
    ['released', n.released],
    ['kept', n.kept],
    ['expired', n.expired],
    ['broken', n.broken + (bus ? bus.applied : 0)],
    ['lost', n.lost, n.lost],
    ['worker gone', n.orphaned, n.orphaned],
    ['refused: busy', n.busy],
    ['refused: zone full', n.full, n.full],
    ['refused: caller', n.denied],
    ['refused: request', n.invalid],
    ['without a key', n.bypassed, n.bypassed],
  ].concat(dry ? [['would be refused', dry]] : []));
}

function showBus(bus) {
  $('bus-card').hidden = !bus;

  if (!bus) {
    return;
  }

  const reads = bus.reading === 'works';
  const publishes = ['works', 'idle'].includes(bus.publishing);
  const skipped = Object.entries(bus.skipped)
    .filter(([reason]) => reason !== 'own')
    .reduce((n, [, value]) => n + value, 0);

  $('bus-health').className = reads && publishes ? 'health' : 'health bad';
  text($('bus-health'),
       reads && publishes ? 'Replicas hear of each other.'
       : !reads ? `Other replicas are not heard (Redis: ${bus.reading}).`
       : `Other replicas do not hear this one (Redis: ${bus.publishing}).`);

  definitions($('bus'), [
    ['published', bus.published],
    ['waiting', bus.queued, bus.queued],
    ['dropped', bus.dropped, bus.dropped],
    ['received', bus.received],
    ['broken by it', bus.applied],
    ['changed nothing', skipped],
    ['reconnects', bus.reconnects],
    ['lag of the last', `${count(bus.lagMs)} ms`],
  ]);
}

function showRegistry(registry, now) {
  $('registry-card').hidden = !registry;

  if (!registry) {
    return;
  }

  const read = moment(registry.read, now);

  $('registry-health').className = registry.failing ? 'health bad' : 'health';
  text($('registry-health'),
       registry.failing ? `Unreadable since it was read at ${read}.`
                        : `Read at ${read}.`);

  definitions($('registry'), [
    ['keys', registry.keys],
    ['servers', registry.servers],
    ['failed readings', registry.failed, registry.failing],
  ]);
}


// The list

function showList(list, breakable) {
  const body = $('rows');
  const rows = new Map();
  const focused = body.contains(document.activeElement);

  $('locks').classList.toggle('still', !breakable);

  list.locks.forEach((lock, i) => {
    const row = state.rows.get(lock.token) ?? makeRow(breakable);

    rows.set(lock.token, row);
    fillRow(row, lock, list.zone);

    if (body.children[i] !== row.element) {
      body.insertBefore(row.element, body.children[i] ?? null);
    }
  });

  for (const [token, row] of state.rows) {
    if (!rows.has(token)) {
      row.element.remove();
    }
  }

  state.rows = rows;

  if (focused && !body.contains(document.activeElement)) {
    $('locks').focus();
  }

  $('none').hidden = list.locks.length > 0;
  text($('none'), filtered() ? 'No lock is like that.' : 'No lock is held.');

  showPager(list);
}

function makeRow(breakable) {
  const row = {
    key: cell('key'),
    operation: cell('operation'),
    state: cell('state'),
    age: cell('age'),
    left: element('span', ''),
    bar: element('div', 'bar'),
    owner: cell('owner'),
    element: element('div', ''),
  };

  row.bar.setAttribute('aria-hidden', 'true');
  row.rest = cell('rest', row.left, row.bar);

  row.element.setAttribute('role', 'row');
  row.element.append(row.key, row.operation, row.state, row.age, row.rest,
                     row.owner);

  if (breakable) {
    const button = element('button', '', 'Break');

    button.type = 'button';
    button.addEventListener('click', () => askToBreak(row.zone, row.lock));

    row.button = button;
    row.element.append(cell('act', button));
  }

  return row;
}

function fillRow(row, lock, zone) {
  row.zone = zone;
  row.lock = lock;

  text(row.key, lock.key);
  text(row.operation, lock.operation);
  text(row.state, lock.state);
  text(row.owner, lock.owner ?? '');

  row.element.className = lock.state;
  row.button?.setAttribute('aria-label', `Break the lock of ${lock.key}`);

  age(row, performance.now() - state.at);
}

// What changes by itself: "passed" ms ago it was as the gateway said.

function age(row, passed) {
  const { lock } = row;
  const rest = Math.max(0, lock.expiresInMs - passed);
  const over = rest === 0 && lock.overrun && lock.state === 'running';

  text(row.age, duration(lock.ageMs + passed));
  text(row.left, rest ? `${duration(rest)} left`
       : over ? 'past it, runs on' : 'over');

  row.rest.classList.toggle('over', over);
  row.bar.classList.toggle('low', rest < 30000 && !over);
  bar(row.bar, rest / (lock.ageMs + lock.expiresInMs || 1));
}

function filtered() {
  return ['f-key', 'f-operation', 'f-state'].some((id) => $(id).value !== '');
}

function showPager(list) {
  const page = state.cursors.length - 1;
  const from = page * LIMIT + 1;
  const to = from + list.locks.length - 1;

  $('pager').hidden = page === 0 && list.cursor === null;
  $('first').disabled = $('previous').disabled = page === 0;
  $('next').disabled = list.cursor === null;

  text($('range'), `${count(from)} to ${count(to)} of`
                   + ` ${count(Math.max(list.matched, to))}`);
}


// What people do

function choose(zone) {
  location.hash = encodeURIComponent(zone);
  enter(zone);
}

function enter(zone) {
  state.zone = zone;
  $('f-operation').length = 1;
  restart();
}

function restart() {
  state.cursors = [''];
  ask();
}

async function turn(cursors) {
  state.cursors = cursors;
  await ask();
  $('locks').scrollIntoView();
  $('heard').textContent = $('range').textContent;
}

// The zone is that of the list: another one may be on its way.

function askToBreak(zone, lock) {
  const dialog = $('ask');

  text($('ask-key'), lock.key);
  text($('ask-lock'), `${lock.operation}, ${lock.state}, held for`
                      + ` ${duration(lock.ageMs)}`);
  text($('ask-text'), lock.state === 'stuck'
       ? 'Its request is gone. If its operation still runs on the server, a'
         + ' second one may start beside it.'
       : 'Its request is still open. A second operation may start beside it'
         + ' on the server.');

  $('ask-yes').onclick = () => {
    dialog.close();
    breakLock(zone, lock);
  };

  dialog.showModal();
}

// A path cannot carry every key: "." and ".." would be a way, and a zero byte
// is refused there.

function breakAddress(zone, lock) {
  const zonePath = `${address}/locks/${encodeURIComponent(zone)}/`;
  const key = encodeURIComponent(lock.key);

  return /^\.\.?$/.test(lock.key) || lock.key.includes('\0')
         ? `${zonePath}?token=${lock.token}&key=${key}`
         : `${zonePath}${key}?token=${lock.token}`;
}

async function breakLock(zone, lock) {
  try {
    const response = await fetch(breakAddress(zone, lock), {
      method: 'DELETE',
      headers: { 'X-Vibelock-Break': '1' },
    });

    const answer = await response.json();

    say(!response.ok ? `It was not broken: ${answer.error.message}.`
        : answer.data.released ? `The lock of ${isolated(lock.key)} is broken.`
        : `The lock of ${isolated(lock.key)} was gone already.`);

  } catch {
    say('It was not broken, or nobody knows: the gateway did not answer.');
  }

  ask();
}

function pause() {
  state.paused = !state.paused;
  $('pause').setAttribute('aria-pressed', String(state.paused));

  if (!state.paused) {
    ask();
    return;
  }

  clearTimeout(state.timer);

  if (state.data) {
    show();
  }
}

// Ages go on between two answers, but not after the last one.

function tick() {
  if (state.lost || state.paused) {
    return;
  }

  const passed = performance.now() - state.at;

  for (const row of state.rows.values()) {
    age(row, passed);
  }
}

let typing = 0;

$('f-key').addEventListener('input', () => {
  clearTimeout(typing);
  typing = setTimeout(restart, 250);
});

$('f-operation').addEventListener('change', restart);
$('f-state').addEventListener('change', restart);
$('filters').addEventListener('submit', (event) => {
  event.preventDefault();
  restart();
});

$('first').addEventListener('click', () => turn(['']));
$('previous').addEventListener('click', () => turn(state.cursors.slice(0, -1)));
$('next').addEventListener('click', () => {
  const cursor = state.data.list.cursor;

  if (cursor !== null) {
    turn([...state.cursors, String(cursor)]);
  }
});

$('ask-no').addEventListener('click', () => $('ask').close());
$('pause').addEventListener('click', pause);

// By the buttons of the browser, or by hand; a choice above is shown already.

window.addEventListener('hashchange', () => {
  const zone = state.data && wanted(state.data.zones);

  if (zone && zone !== state.zone) {
    enter(zone);
  }
});

document.addEventListener('visibilitychange', () => {
  if (!document.hidden && !state.paused) {
    ask();
  }
});

$('host').textContent = location.host;

setInterval(tick, 1000);
ask();
