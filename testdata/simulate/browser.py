# browser.py CHROMIUM PPC: pages as a browser sees them. Each page gets a script at its end that uses it as a person
# would (keys, pointer, buttons), looks at the pixels of the boxes, and leaves what it saw in the document, which the
# browser prints.
import json, os, re, subprocess, sys, tempfile

chromium, ppc = sys.argv[1:3]

PROBE = """
<script>
const seen = {};
const key = (name, more) => { const c = document.getElementById('chart0');
  c.dispatchEvent(new KeyboardEvent('keydown', {key: name, bubbles: true, cancelable: true, ...more})); drawAll(); };
const at = (p, type, x, y, more) => { const box = p.canvas.getBoundingClientRect();
  const event = new PointerEvent(type, {clientX: box.left + x, clientY: box.top + y, button: 0, bubbles: true, pointerId: 1, ...more});
  p.canvas.dispatchEvent(event); drawAll(); };
const close = (rgb, hex) => [1, 3, 5].every((k, i) => Math.abs(rgb[i] - parseInt(hex.slice(k, k + 2), 16)) <= 6);
function pixel(p, x, y) { const r = p.ratio; return p.context.getImageData(Math.round(x * r), Math.round(y * r), 1, 1).data; }
// Boxes whose colour is not what it should be, two pixels inside their upper left corner.
function wrong(p) {
  const bad = [];
  for (let i = 0; i < p.nTasks; i++) {
    const b = boxOf(p, i, rankOf(p, i));
    if (b.width >= 6 && b.x >= LEFT && b.x + b.width < p.width - RIGHT && !close(pixel(p, b.x + 3, b.y + 3), colors(p, i).fill)) bad.push(i);
  }
  return bad;
}
// Ranks whose memory curve is not there where it should be: at its first highest level, just above the ground, and
// nowhere after the last task.
function flat(p) {
  const bad = [], back = getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number);
  const empty = rgb => rgb[3] === 0 || back.every((v, k) => Math.abs(rgb[k] - v) < 8);
  for (let r = 0; p.levels && r < p.ranks; r++) {
    const l = p.levels[r], i = l.value.indexOf(Math.max(...l.value)), y = yOf(p, r) + p.bar + p.strip - 2;
    const x = (xOf(p, l.time[i]) + xOf(p, i + 1 < l.time.length ? l.time[i + 1] : p.until)) / 2, right = xOf(p, p.until);
    if (empty(pixel(p, x, y)) || (right < p.width - RIGHT - 20 && !empty(pixel(p, right + 9, y)) && !empty(pixel(p, right + 11, y)))) bad.push(r);
  }
  return bad;
}
try {
  seen.ready = document.body.dataset.ready;
  seen.panels = data.panels.map(p => ({tasks: p.nTasks, drawn: p.drawn, moves: p.nTransfers, ranks: p.ranks, height: p.canvas.clientHeight,
    width: p.canvas.clientWidth, wrong: wrong(p).length, flat: flat(p).length, memory: !!p.levels, first: [p.start[0], p.end[0]], last: Math.max(...p.end.slice(-2000)), lane: [...new Set(p.lane)]}));
  const p = data.panels[0], end = p.ranks - 1;
  seen.last = pixel(p, xOf(p, (p.start[p.first[end]] + p.end[p.first[end]]) / 2), yOf(p, end) + 2)[3];
  seen.back = getComputedStyle(document.body).backgroundColor;
  seen.overflow = document.documentElement.scrollWidth - innerWidth;
  seen.outside = performance.getEntriesByType('resource').length;
  key('+'); key('+'); seen.zoomed = [view.a, view.b]; seen.drawnZoomed = p.drawn;
  key('ArrowRight'); seen.moved = view.a; key('ArrowLeft'); key('Home'); seen.home = view.a; key('End'); seen.end = view.b;
  key('0'); seen.reset = [view.a, view.b];
  document.getElementById('in').click(); seen.button = view.b - view.a; document.getElementById('all').click(); drawAll();
  key('ArrowRight', {shiftKey: true}); key('ArrowRight', {shiftKey: true}); seen.selected = document.getElementById('status').textContent;
  key('ArrowDown'); seen.below = hover.rank; key('Escape'); seen.escaped = hover === null && tip.hidden;
  // The pointer on the first task that takes something.
  let task = 0;
  while (task < p.nTasks && p.into(task).length === 0) task++;
  if (task < p.nTasks) {
    const rank = rankOf(p, task), b = boxOf(p, task, rank), before = p.context.getImageData(0, 0, p.canvas.width, p.canvas.height).data.slice();
    at(p, 'pointermove', b.x + b.width / 2, b.y + b.height / 4);
    const after = p.context.getImageData(0, 0, p.canvas.width, p.canvas.height).data;
    seen.tip = tip.hidden ? '' : tip.textContent;
    const k = p.into(task)[0], t = p.moves;
    const y = (yOf(p, t.from[k]) + yOf(p, t.to[k]) + p.bar) / 2 | 0, row = Math.round(y * p.ratio) * p.canvas.width * 4;
    seen.arrow = 0;
    for (let i = row; i < row + p.canvas.width * 4; i++) seen.arrow += before[i] !== after[i];
    const box = tip.getBoundingClientRect();
    seen.tipInside = box.left >= 0 && box.right <= innerWidth && box.bottom <= innerHeight;
    at(p, 'pointerleave', 0, 0); p.chart.dispatchEvent(new PointerEvent('pointerleave')); seen.left = tip.hidden;
  }
  at(p, 'pointerdown', 600, 40); at(p, 'pointermove', 400, 40); at(p, 'pointerup', 400, 40);
  p.chart.dispatchEvent(new WheelEvent('wheel', {deltaY: -300, ctrlKey: true, bubbles: true, cancelable: true})); drawAll();
  seen.wheel = view.b - view.a;
  seen.table = document.querySelectorAll('table').length + ' ' + document.querySelectorAll('tbody tr').length;
} catch (error) { seen.error = String(error.stack); }
const result = document.createElement('pre');
result.id = 'seen';
result.textContent = JSON.stringify(seen);
document.body.append(result);
</script>"""

# Hovering in an SVG takes effect with a later frame: it is waited for.
SVG_PROBE = """
<script>
const seen = {}, arrow = document.querySelector('path.a'), svg = document.querySelector('svg');
const shown = () => getComputedStyle(arrow).display;
const until = wanted => new Promise(done => {
  let n = 0;
  const look = () => {
    svg.setCurrentTime(svg.getCurrentTime() + 0.05);
    if (shown() === wanted || ++n > 100) done(shown());
    else setTimeout(look, 30);
  };
  look();
});
addEventListener('load', async () => {
  const box = document.getElementById(arrow.querySelector('set').getAttribute('begin').split('.')[0]);
  seen.before = shown();
  box.dispatchEvent(new MouseEvent('mouseover', {bubbles: true}));
  seen.over = await until('inline');
  box.dispatchEvent(new MouseEvent('mouseout', {bubbles: true}));
  seen.after = await until('none');
  seen.back = getComputedStyle(document.querySelector('.b')).fill;
  seen.texts = [...document.querySelectorAll('svg text')].filter(t => t.getBBox().x < -1 || t.getBBox().x + t.getBBox().width > 1201).map(t => t.textContent);
  const result = document.createElement('pre');
  result.id = 'seen';
  result.textContent = JSON.stringify(seen);
  document.body.append(result);
});
</script>"""

DARK = ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"]


def look(path, *options):
    with tempfile.TemporaryDirectory() as home:
        out = subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions", "--hide-scrollbars",
                              f"--user-data-dir={home}", "--window-size=1280,900", "--virtual-time-budget=20000", *options, "--dump-dom",
                              "file://" + os.path.abspath(path)],
                             capture_output=True, text=True, timeout=240, env={**os.environ, "HOME": home})
    found = re.search(r'<pre id="seen">(.*?)</pre>', out.stdout, re.S)
    assert found, "the page says nothing:\n" + out.stdout[-2000:] + out.stderr[-2000:]
    import html
    seen = json.loads(html.unescape(found.group(1)))
    assert "error" not in seen, seen["error"]
    return seen


def page(name, *arguments):
    out = subprocess.run([ppc, "simulate", *arguments, f"--html={name}.html", f"--svg={name}.svg", "--json"], capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    text = open(f"{name}.html").read()
    assert text.count("</body>") == 1
    open(f"{name}.html", "w").write(text.replace("</body>", PROBE + "</body>"))
    svg = open(f"{name}.svg").read()
    open(f"{name}.svg.html", "w").write("<!doctype html><body>" + svg + SVG_PROBE)
    return json.loads(out.stdout)


def check(seen, n_panels, dark=False):
    assert seen["ready"] == "1" and len(seen["panels"]) == n_panels and seen["outside"] == 0
    for p in seen["panels"]:
        assert p["drawn"] == p["tasks"] > 0 and p["height"] > 20 * p["ranks"] / 4 and p["wrong"] == 0 and p["flat"] == 0, p
    assert seen["overflow"] <= 0
    assert seen["back"] == ("rgb(22, 24, 28)" if dark else "rgb(255, 255, 255)"), seen["back"]
    a, b = seen["zoomed"]
    assert abs(b - a - 0.25) < 1e-9 and seen["drawnZoomed"] < seen["panels"][0]["tasks"]
    assert seen["moved"] > a and seen["home"] == 0 and seen["end"] == 1 and seen["reset"] == [0, 1]
    assert abs(seen["button"] - 0.5) < 1e-9 and 0 < seen["wheel"] < 1
    assert re.search(r"stage \d+, microbatch \d+, rank 0", seen["selected"]), seen["selected"]
    assert seen["escaped"] and seen["below"] in (0, 1)


# A schedule, light and dark: every box has its colour, the pointer shows arrow and text.
facts = page("zb", "--schedule=zb_h1", "--ranks=4", "--microbatches=8")
for dark in (False, True):
    seen = look("zb.html", *(DARK if dark else []))
    check(seen, 1, dark)
    assert seen["panels"][0]["tasks"] == 96 and seen["panels"][0]["moves"] == 48 and seen["table"] == "1 4"
    assert abs(seen["panels"][0]["last"] - facts["step_time"]) < 1e-6 and abs(seen["panels"][0]["first"][1] - 1) < 1e-6
    assert "takes" in seen["tip"] and "from rank" in seen["tip"] and "schedules.pp:" in seen["tip"], seen["tip"]
    assert seen["arrow"] > 0 and seen["tipInside"] and seen["left"]
    svg = look("zb.svg.html", *(DARK if dark else []))
    assert svg["before"] == "none" and svg["over"] == "inline" and svg["after"] == "none", svg
    assert svg["back"] == ("rgb(22, 24, 28)" if dark else "rgb(255, 255, 255)") and svg["texts"] == [], svg

# Pairs share a row; a hundred thousand tasks are there when it is open.
page("pairs", "--schedule=dualpipe_v", "--ranks=4", "--microbatches=8", "--cost", "pair=1.5")
seen = look("pairs.html")
assert sorted(seen["panels"][0]["lane"]) == [0, 1, 2], seen["panels"]
page("large", "--schedule=interleaved_zero_bubble(8)", "--ranks=32", "--microbatches=128")
seen = look("large.html")
assert seen["panels"][0]["drawn"] == 32 * 8 * 128 * 3 and seen["drawnZoomed"] < seen["panels"][0]["drawn"]

# More ranks than a canvas has room for at full height: something is drawn on the last of them.
page("tall", "--schedule=gpipe", "--ranks=2000", "--microbatches=2")
seen = look("tall.html")
assert seen["panels"][0]["drawn"] == 8000 and seen["last"] > 0, seen

# A model, predicted and measured on one scale.
model = os.path.join(os.path.dirname(__file__), "..", "models", "mlp.pp")
subprocess.run([ppc, "run", model, "--ranks=2", "--steps=4", "--quiet", "--trace=t.json"], check=True)
page("both", model, "--ranks=2", "--trace=t.json")
seen = look("both.html")
check(seen, 2)
assert seen["panels"][0]["memory"] and seen["panels"][0]["tasks"] == seen["panels"][1]["tasks"] and seen["panels"][0]["moves"] == seen["panels"][1]["moves"] > 0, seen["panels"]
assert seen["table"] == "2 4"
print("fine")
