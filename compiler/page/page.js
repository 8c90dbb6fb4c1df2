// The page's script: draws the timelines of #data on canvases, with one view for all. See picture_html.c for
// how they are packed. What is narrower than a pixel is drawn as columns: the kind with most of the time, as
// strong as the column is busy.
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const LEFT = 64, RIGHT = 82, AXIS = 22;
const MAX_PIXELS = 16000; // a browser draws no higher canvas
const view = {a: 0, b: 1};
const tip = document.getElementById('tip'), status = document.getElementById('status');
let style, hover = null, cursor = null, pending = false, showsPath = false;

// --- unpacking ---------------------------------------------------------------------------------------------

function reader(text) {
  const raw = atob(text);
  let at = 0;
  const unsigned = () => {
    let value = 0, scale = 1;
    for (;;) {
      const byte = raw.charCodeAt(at++);
      value += (byte & 127) * scale;
      if (byte < 128) return value;
      scale *= 128;
    }
  };
  const signed = () => {
    const v = unsigned();
    return v % 2 ? -(v + 1) / 2 : v / 2;
  };
  return {unsigned, signed};
}

function unpackTasks(p) {
  const n = p.nTasks, r = reader(p.tasks);
  Object.assign(p, {task: new Uint8Array(n), kind: new Uint8Array(n), lane: new Uint8Array(n), critical: new Uint8Array(n), stage: new Int32Array(n),
    mb: new Int32Array(n), start: new Float64Array(n), end: new Float64Array(n), line: new Int32Array(n), first: [0]});
  let i = 0;
  for (const count of p.counts) {
    let last = 0;
    for (const stop = i + count; i < stop; i++) {
      const head = r.unsigned();
      p.task[i] = head & 7;
      p.kind[i] = data.classOf[p.task[i]];
      p.lane[i] = head >> 3 & 3;
      p.critical[i] = head >> 5 & 1;
      p.stage[i] = (head >> 6) - 1;
      p.mb[i] = r.unsigned() - 1;
      const start = last + r.signed();
      last = start + r.unsigned();
      p.start[i] = start * p.tick;
      p.end[i] = last * p.tick;
      p.line[i] = r.unsigned() - 1;
    }
    p.first.push(i);
  }
}

function unpackTransfers(p) {
  const n = p.nTransfers, r = reader(p.transfers);
  const t = p.moves = {made: new Int32Array(n), used: new Int32Array(n), from: new Int32Array(n), to: new Int32Array(n),
    mb: new Int32Array(n), start: new Float64Array(n), end: new Float64Array(n), value: new Int32Array(n), bytes: new Int32Array(n)};
  let made = 0, start = 0;
  for (let i = 0; i < n; i++) {
    t.made[i] = made += r.signed();
    t.used[i] = made + r.signed();
    t.from[i] = r.unsigned();
    t.to[i] = r.unsigned();
    t.mb[i] = r.unsigned() - 1;
    start += r.signed();
    t.start[i] = start * p.tick;
    t.end[i] = (start + r.unsigned()) * p.tick;
    t.value[i] = r.unsigned() - 1;
    t.bytes[i] = r.unsigned();
  }
  p.into = indexBy(t.used, p.nTasks);
  p.outOf = indexBy(t.made, p.nTasks);
}

// Lists of transfers by task: a counting sort.
function indexBy(task, n) {
  const first = new Int32Array(n + 2), list = new Int32Array(task.length);
  for (const t of task) if (t >= 0) first[t + 2]++;
  for (let i = 2; i <= n + 1; i++) first[i] += first[i - 1];
  for (let i = 0; i < task.length; i++) if (task[i] >= 0) list[first[task[i] + 1]++] = i;
  return i => list.subarray(first[i], first[i + 1]);
}

function unpackMemory(p) {
  if (!p.memory) return;
  const r = reader(p.memory);
  p.levels = p.levelCounts.map(n => {
    const levels = {time: new Float64Array(n), value: new Float64Array(n)};
    let time = 0, value = 0;
    for (let i = 0; i < n; i++) {
      time += r.signed();
      value += r.signed();
      levels.time[i] = time * p.tick;
      levels.value[i] = value / p.levelScale;
    }
    return levels;
  });
}

// --- numbers ------------------------------------------------------------------------------------------------

function timeText(p, t) {
  const size = p.span * (view.b - view.a) / p.unit;
  const digits = Math.max(0, Math.min(9, 4 - Math.floor(Math.log10(size))));
  return String(Number((t / p.unit).toFixed(digits))) + p.unitName;
}

function bytesText(n) {
  const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let k = 0;
  for (; n >= 1024 && k < 4; k++) n /= 1024;
  return (n < 10 && k ? n.toFixed(1) : n.toFixed(0)) + ' ' + names[k];
}

const levelText = (p, v) => p.inBytes ? bytesText(v) : String(Number(v.toPrecision(6)));

function niceTick(span, n) {
  const raw = span / n, power = 10 ** Math.floor(Math.log10(raw)), rest = raw / power;
  return power * (rest <= 1 ? 1 : rest <= 2 ? 2 : rest <= 5 ? 5 : 10);
}

// --- geometry ------------------------------------------------------------------------------------------------

function heights(p) {
  const n = p.ranks, many = n > 16, most = n > 64;
  p.bar = most ? 5 : many ? 13 : 24;
  p.strip = !p.levels ? 0 : most ? 3 : many ? 8 : 18;
  p.gap = most ? 1 : many ? 3 : 7;
  p.row = p.bar + p.strip + p.gap;
  p.height = AXIS + p.row * n + 4;
}

const plotWidth = p => p.width - LEFT - RIGHT;
const xOf = (p, t) => LEFT + (t / p.span - view.a) / (view.b - view.a) * plotWidth(p);
const timeAt = (p, x) => ((x - LEFT) / plotWidth(p) * (view.b - view.a) + view.a) * p.span;
const yOf = (p, rank) => AXIS + rank * p.row;

// The first task of the rank that ends after t.
function firstAfter(p, rank, t) {
  let low = p.first[rank], high = p.first[rank + 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (p.end[middle] <= t) low = middle + 1;
    else high = middle;
  }
  return low;
}

function rankOf(p, task) {
  let low = 0, high = p.ranks - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (p.first[middle] <= task) low = middle;
    else high = middle - 1;
  }
  return low;
}

function boxOf(p, i, rank) {
  const x = xOf(p, p.start[i]), half = p.bar / 2;
  return {x, width: xOf(p, p.end[i]) - x, y: yOf(p, rank) + (p.lane[i] === 2 ? half : 0), height: p.lane[i] ? half : p.bar};
}

// --- drawing -------------------------------------------------------------------------------------------------

function colors(p, i) {
  const chunk = p.stage[i] >= 0 ? p.chunk[p.stage[i]] || 0 : 0;
  return data.colors[p.kind[i]][Math.min(chunk, data.colors[p.kind[i]].length - 1)];
}

const font = size => `${size}px ui-monospace, Menlo, Consolas, monospace`;

// The longest of "F12 s3", "F12" and "12" that fits; in small letters before it is left out.
function drawLabel(p, c, i, x, y, width) {
  const letter = data.letters[p.kind[i]], mb = p.mb[i] >= 0 ? String(p.mb[i]) : '';
  const texts = [p.chunks > 1 && p.stage[i] >= 0 ? `${letter}${mb} s${p.stage[i]}` : letter + mb, letter + mb, mb || letter];
  const text = texts.find(t => t.length * p.letterWidth + 4 <= width), small = texts[2];
  if (!text && small.length * p.letterWidth * 0.82 + 1 > width) return;
  c.font = font(text ? 11 : 9);
  c.fillText(text || small, x, y);
}

function drawColumns(p, c, y) {
  for (const [x, busy] of p.columns) {
    let most = 0, sum = 0;
    for (let k = 0; k < busy.length; k++) {
      sum += busy[k];
      if (busy[k] > busy[most]) most = k;
    }
    c.globalAlpha = Math.max(0.15, Math.min(1, sum));
    c.fillStyle = data.colors[most][0].fill;
    c.fillRect(x, y, 1, p.bar);
  }
  c.globalAlpha = 1;
  p.columns.length = 0;
}

// Adds what part of the columns' width a narrow task fills.
function addToColumns(p, x0, x1, kind) {
  for (let x = Math.floor(x0); x < x1; x++) {
    let last = p.columns[p.columns.length - 1];
    if (!last || last[0] !== x) p.columns.push(last = [x, new Float64Array(data.colors.length)]);
    last[1][kind] += Math.min(x1, x + 1) - Math.max(x0, x);
  }
}

function drawBox(p, c, i, rank, box) {
  const color = colors(p, i), left = Math.max(box.x, LEFT - 1), right = Math.min(box.x + box.width, p.width - RIGHT + 1);
  c.fillStyle = color.fill;
  c.fillRect(left, box.y, right - left, box.height);
  if (box.width > 3) {
    c.strokeStyle = style.box;
    c.lineWidth = 1;
    c.strokeRect(box.x, box.y, box.width, box.height);
  }
  if (showsPath && p.critical[i]) {
    c.fillStyle = style.mark;
    c.fillRect(left, box.y + box.height - 3, Math.max(1, right - left), 3);
  }
  if (box.height < 9) return;
  c.fillStyle = color.ink;
  drawLabel(p, c, i, (left + right) / 2, box.y + box.height / 2 + 0.5, right - left);
}

function drawRank(p, c, rank) {
  const until = timeAt(p, p.width - RIGHT), scale = plotWidth(p) / (p.span * (view.b - view.a));
  let drawn = 0;
  for (let i = firstAfter(p, rank, timeAt(p, LEFT)); i < p.first[rank + 1] && p.start[i] < until; i++, drawn++) {
    if ((p.end[i] - p.start[i]) * scale < 1) {
      const x = xOf(p, p.start[i]);
      addToColumns(p, x, x + Math.max(0.05, (p.end[i] - p.start[i]) * scale), p.kind[i]);
    } else {
      drawBox(p, c, i, rank, boxOf(p, i, rank));
    }
  }
  drawColumns(p, c, yOf(p, rank));
  return drawn;
}

function drawMemory(p, c, rank) {
  const levels = p.levels[rank], n = levels.time.length, base = yOf(p, rank) + p.bar + 1 + p.strip;
  const height = v => base - v / p.peak * (p.strip - 2);
  const from = timeAt(p, LEFT), until = timeAt(p, p.width - RIGHT), right = Math.max(LEFT, Math.min(p.width - RIGHT, xOf(p, p.until)));
  let low = 0, high = n;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (levels.time[middle] <= from) low = middle + 1;
    else high = middle;
  }
  let value = low ? levels.value[low - 1] : 0;
  c.beginPath();
  c.moveTo(LEFT, base);
  c.lineTo(LEFT, height(value));
  for (let i = low; i < n && levels.time[i] < until;) {
    const at = xOf(p, levels.time[i]);
    c.lineTo(at, height(value));
    let highest = value = levels.value[i];
    for (i++; i < n && xOf(p, levels.time[i]) - at < 1; i++) {
      value = levels.value[i];
      highest = Math.max(highest, value);
    }
    c.lineTo(at, height(highest));
    if (highest === value) continue;
    c.lineTo(at + 0.5, height(highest));
    c.lineTo(at + 0.5, height(value));
  }
  c.lineTo(right, height(value));
  c.lineTo(right, base);
  c.closePath();
  c.fillStyle = style.memory;
  c.globalAlpha = 0.55;
  c.fill();
  c.globalAlpha = 1;
}

function drawAxis(p, c) {
  const tick = niceTick(p.span * (view.b - view.a), Math.max(2, plotWidth(p) / 110)), until = timeAt(p, p.width - RIGHT);
  c.strokeStyle = style.line;
  c.fillStyle = style.soft;
  c.lineWidth = 1;
  for (let k = Math.ceil(timeAt(p, LEFT) / tick - 1e-9); k * tick <= until * (1 + 1e-9); k++) {
    const x = Math.round(xOf(p, k * tick)) + 0.5;
    c.beginPath();
    c.moveTo(x, AXIS - 5);
    c.lineTo(x, p.height - 2);
    c.stroke();
    c.fillText(timeText(p, k * tick), x, AXIS - 13);
  }
}

function drawNames(p, c) {
  const size = Math.min(12, Math.max(9, p.bar)), every = Math.ceil(size / p.row);
  c.font = font(size);
  c.textAlign = 'left';
  c.fillStyle = style.soft;
  if (p.levels) c.fillText(p.inBytes ? 'peak' : 'live', p.width - RIGHT + 7, AXIS - 13);
  for (let r = 0; r < p.ranks; r += every) {
    c.textAlign = 'right';
    c.fillStyle = style.text;
    c.fillText(p.ranks > 999 ? r : `rank ${r}`, LEFT - 7, yOf(p, r) + p.bar / 2 + 0.5);
    c.textAlign = 'left';
    c.fillStyle = style.soft;
    if (p.levels) c.fillText(levelText(p, p.peaks[r]), p.width - RIGHT + 7, yOf(p, r) + p.bar + p.strip / 2 + 1);
  }
}

function drawArrow(c, x0, y0, x1, y1) {
  const angle = Math.atan2(y1 - y0, x1 - x0);
  c.beginPath();
  c.moveTo(x0, y0);
  c.lineTo(x1, y1);
  c.stroke();
  c.beginPath();
  c.moveTo(x1, y1);
  c.lineTo(x1 - 8 * Math.cos(angle - 0.4), y1 - 8 * Math.sin(angle - 0.4));
  c.lineTo(x1 - 8 * Math.cos(angle + 0.4), y1 - 8 * Math.sin(angle + 0.4));
  c.fill();
}

function drawMoves(p, c, task) {
  const t = p.moves;
  c.strokeStyle = c.fillStyle = style.mark;
  c.lineWidth = 1.7;
  for (const list of [p.into(task), p.outOf(task)]) {
    for (const i of list) {
      const down = t.to[i] > t.from[i];
      drawArrow(c, xOf(p, t.start[i]), yOf(p, t.from[i]) + (down ? p.bar : 0), xOf(p, t.end[i]), yOf(p, t.to[i]) + (down ? 0 : p.bar));
    }
  }
}

function drawHover(p, c) {
  const box = boxOf(p, hover.task, hover.rank);
  c.strokeStyle = style.mark;
  c.lineWidth = 2;
  c.strokeRect(box.x, box.y, Math.max(2, box.width), box.height);
  drawMoves(p, c, hover.task);
}

function draw(p) {
  const c = p.context, ratio = p.ratio = Math.min(devicePixelRatio || 1, MAX_PIXELS / p.height);
  p.width = p.canvas.clientWidth;
  if (p.canvas.width !== Math.round(p.width * ratio) || p.canvas.height !== Math.round(p.height * ratio)) {
    p.canvas.width = Math.round(p.width * ratio);
    p.canvas.height = Math.round(p.height * ratio);
  }
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, p.width, p.height);
  c.textBaseline = 'middle';
  c.textAlign = 'center';
  c.font = font(11);
  p.letterWidth = c.measureText('0').width;
  drawAxis(p, c);
  c.save();
  c.beginPath();
  c.rect(LEFT, AXIS - 2, plotWidth(p), p.height);
  c.clip();
  p.drawn = 0;
  for (let r = 0; r < p.ranks; r++) {
    p.drawn += drawRank(p, c, r);
    if (p.levels) drawMemory(p, c, r);
  }
  if (cursor !== null) {
    const x = LEFT + (cursor - view.a) / (view.b - view.a) * plotWidth(p);
    c.strokeStyle = style.soft;
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(x, AXIS - 5);
    c.lineTo(x, p.height);
    c.stroke();
  }
  if (hover && hover.panel === p) drawHover(p, c);
  c.restore();
  drawNames(p, c);
  p.chart.dataset.drawn = p.drawn;
}

function drawAll() {
  pending = false;
  data.panels.forEach(draw);
  document.body.dataset.view = `${view.a.toPrecision(6)} ${view.b.toPrecision(6)}`;
}

function redraw() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(drawAll);
}

function readStyle() {
  const all = getComputedStyle(document.documentElement);
  style = {};
  for (const name of ['text', 'soft', 'line', 'box', 'memory', 'mark']) style[name] = all.getPropertyValue('--' + name).trim();
  redraw();
}

// --- a task in words -----------------------------------------------------------------------------------------

function moveText(p, i, incoming) {
  const t = p.moves, value = t.value[i] >= 0 ? p.values[t.value[i]] : 'a value';
  const size = t.bytes[i] ? `, ${bytesText(p.sizes[t.bytes[i] - 1])}` : '';
  return `${incoming ? 'takes' : 'sends'} ${value}${size} ${incoming ? 'from rank ' + t.from[i] : 'to rank ' + t.to[i]}, ${timeText(p, t.start[i])} to ${timeText(p, t.end[i])}`;
}

function describe(p, i) {
  const lines = [data.kinds[p.task[i]]];
  lines.push([p.stage[i] >= 0 ? `stage ${p.stage[i]}` : '', p.mb[i] >= 0 ? `microbatch ${p.mb[i]}` : '', `rank ${rankOf(p, i)}`].filter(Boolean).join(', '));
  lines.push(`${timeText(p, p.start[i])} to ${timeText(p, p.end[i])}: ${timeText(p, p.end[i] - p.start[i])}`);
  if (p.line[i] >= 0) lines.push(p.lines[p.line[i]]);
  if (p.critical[i]) lines.push('on the critical path');
  for (const k of p.into(i)) lines.push(moveText(p, k, true));
  for (const k of p.outOf(i)) lines.push(moveText(p, k, false));
  return lines.slice(0, 14).join('\n');
}

function showTip(x, y) {
  tip.hidden = !hover;
  if (!hover) return;
  tip.textContent = describe(hover.panel, hover.task);
  const box = tip.getBoundingClientRect();
  const left = x + 16 + box.width > innerWidth ? x - 16 - box.width : x + 16;
  const top = y + 14 + box.height > innerHeight ? y - 14 - box.height : y + 14;
  tip.style.left = Math.max(4, left) + 'px';
  tip.style.top = Math.max(4, top) + 'px';
}

function taskAt(p, x, y) {
  const rank = Math.floor((y - AXIS) / p.row), within = y - AXIS - rank * p.row;
  if (x < LEFT || x > p.width - RIGHT || rank < 0 || rank >= p.ranks || within > p.bar) return null;
  const t = timeAt(p, x);
  let i = firstAfter(p, rank, t);
  if (i < p.first[rank + 1] && p.lane[i] === 1 && within > p.bar / 2 && i + 1 < p.first[rank + 1] && p.lane[i + 1] === 2) i++;
  return i < p.first[rank + 1] && p.start[i] <= t ? {panel: p, task: i, rank} : null;
}

// --- the view --------------------------------------------------------------------------------------------------

function setView(a, b) {
  const size = Math.min(1, Math.max(1e-6, b - a));
  view.a = Math.min(1 - size, Math.max(0, a));
  view.b = view.a + size;
  redraw();
}

function zoom(factor, at) {
  const middle = at === undefined ? (view.a + view.b) / 2 : at;
  setView(middle - (middle - view.a) * factor, middle + (view.b - middle) * factor);
}

const pan = part => setView(view.a + part * (view.b - view.a), view.b + part * (view.b - view.a));

// Brings a task into view, and says it.
function select(p, task, rank) {
  hover = {panel: p, task, rank};
  const size = view.b - view.a, middle = (p.start[task] + p.end[task]) / 2 / p.span;
  if (middle < view.a || middle > view.b) setView(middle - size / 2, middle + size / 2);
  const box = p.canvas.getBoundingClientRect(), at = boxOf(p, task, rank);
  showTip(box.left + Math.min(Math.max(at.x, LEFT), p.width - RIGHT), box.top + at.y + at.height);
  status.textContent = describe(p, task);
  redraw();
}

function step(p, by) {
  if (!hover || hover.panel !== p) return select(p, Math.min(p.nTasks - 1, firstAfter(p, 0, timeAt(p, LEFT))), 0);
  const task = Math.min(p.nTasks - 1, Math.max(0, hover.task + by));
  select(p, task, rankOf(p, task));
}

function stepRank(p, by) {
  if (!hover || hover.panel !== p) return step(p, 0);
  const rank = Math.min(p.ranks - 1, Math.max(0, hover.rank + by));
  if (p.first[rank] === p.first[rank + 1]) return;
  select(p, Math.min(p.first[rank + 1] - 1, firstAfter(p, rank, p.start[hover.task])), rank);
}

function onKey(p, event) {
  const keys = {
    '+': () => zoom(0.5), '=': () => zoom(0.5), '-': () => zoom(2), '0': () => setView(0, 1), Home: () => setView(0, view.b - view.a),
    End: () => setView(1 - (view.b - view.a), 1), ArrowLeft: () => event.shiftKey ? step(p, -1) : pan(-0.2),
    ArrowRight: () => event.shiftKey ? step(p, 1) : pan(0.2), ArrowUp: () => stepRank(p, -1), ArrowDown: () => stepRank(p, 1),
    Escape: () => { hover = null; showTip(); redraw(); },
  };
  if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
}

function onWheel(p, event) {
  const at = Math.min(1, Math.max(0, timeAt(p, event.offsetX) / p.span));
  const sideways = event.shiftKey ? event.deltaY : event.deltaX;
  if (event.ctrlKey || event.metaKey) zoom(Math.exp(event.deltaY * 0.004), at);
  else if (Math.abs(sideways) > 0 && (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))) pan(sideways / plotWidth(p));
  else return;
  event.preventDefault();
}

function onMove(p, event) {
  if (p.drag) {
    const moved = (event.clientX - p.drag.x) / plotWidth(p) * (p.drag.b - p.drag.a);
    setView(p.drag.a - moved, p.drag.b - moved);
  }
  hover = taskAt(p, event.offsetX, event.offsetY);
  cursor = event.offsetX >= LEFT && event.offsetX <= p.width - RIGHT ? timeAt(p, event.offsetX) / p.span : null;
  showTip(event.clientX, event.clientY);
  redraw();
}

function listen(p) {
  const chart = p.chart;
  chart.addEventListener('keydown', event => onKey(p, event));
  chart.addEventListener('wheel', event => onWheel(p, event), {passive: false});
  chart.addEventListener('pointermove', event => onMove(p, event));
  chart.addEventListener('pointerdown', event => {
    if (event.button !== 0) return;
    p.drag = {x: event.clientX, a: view.a, b: view.b};
    chart.setPointerCapture(event.pointerId);
    chart.classList.add('moving');
  });
  for (const name of ['pointerup', 'pointercancel']) chart.addEventListener(name, () => { p.drag = null; chart.classList.remove('moving'); });
  chart.addEventListener('pointerleave', () => { hover = cursor = null; showTip(); redraw(); });
  chart.addEventListener('blur', () => { hover = null; showTip(); redraw(); });
  chart.addEventListener('dblclick', event => zoom(0.5, timeAt(p, event.offsetX) / p.span));
}

// --- start ------------------------------------------------------------------------------------------------------

data.panels.forEach((p, k) => {
  unpackTasks(p);
  unpackTransfers(p);
  unpackMemory(p);
  heights(p);
  p.columns = [];
  p.chart = document.getElementById('chart' + k);
  p.canvas = p.chart.querySelector('canvas');
  p.context = p.canvas.getContext('2d');
  p.canvas.style.height = p.height + 'px';
  listen(p);
});
document.getElementById('in').addEventListener('click', () => zoom(0.5));
document.getElementById('out').addEventListener('click', () => zoom(2));
document.getElementById('all').addEventListener('click', () => setView(0, 1));
const path = document.getElementById('path');
if (path) path.addEventListener('change', () => { showsPath = path.checked; redraw(); });
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', readStyle);
addEventListener('resize', redraw);
readStyle();
drawAll();
document.body.dataset.ready = '1';
