/* A trace with more calls than a page can show one by one: sums over time, as a picture that is drawn once and then stretched,
   and closer ones, or the calls themselves, from the program that serves the page. */
function bytesOf(text) { const letters = atob(text), bytes = new Uint8Array(letters.length); for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i); return bytes; }
const floatsOf = text => new Float32Array(bytesOf(text).buffer);
class Grid {
  constructor(of) {
    Object.assign(this, of);
    this.cells = bytesOf(of.cells); this.totals = floatsOf(of.totals); this.busy = floatsOf(of.busy); this.queue = floatsOf(of.queue);
    this.rows = this.cells.length / of.columns / 5; this.sums = rows(of.sums); this.matrix = rows(of.matrix); this.longest = of.longest[0];
    let most = 1; for (const v of this.queue) if (v > most) most = v; this.most = most;
  }
  covers(a, b, first, last) { return this.from <= a && this.to >= b && this.first <= first && this.last >= last; }
  picture() {
    if (this.canvas && this.dark === colors.back) return this.canvas;
    const canvas = this.canvas || document.createElement("canvas"); canvas.width = this.columns; canvas.height = this.rows;
    const g = canvas.getContext("2d"), image = g.createImageData(this.columns, this.rows), mix = CLASSES.slice(0, 6).map(name => parsed(colors[name]));
    for (let p = 0, c = 0; p < image.data.length; p += 4, c += 5) {
      let rest = 255, red = 0, green = 0, blue = 0;
      for (let k = 0; k < 5; k++) { const part = this.cells[c + k]; if (part) { const color = mix[k + 1]; rest -= part; red += color[0] * part; green += color[1] * part; blue += color[2] * part; } }
      if (rest < 0) rest = 0;
      image.data[p] = (red + mix[0][0] * rest) / 255; image.data[p + 1] = (green + mix[0][1] * rest) / 255; image.data[p + 2] = (blue + mix[0][2] * rest) / 255; image.data[p + 3] = 255;
    }
    g.putImageData(image, 0, 0); this.canvas = canvas; this.dark = colors.back;
    return canvas;
  }
  /* Its part of the visible time and ranks. */
  paint(g, l, width) {
    const a = Math.max(from, this.from), b = Math.min(to, this.to), first = Math.max(r0, this.first), last = Math.min(r1, this.last);
    if (a >= b || first >= last) return;
    const px = x(a, width), py = y(first, l);
    g.imageSmoothingEnabled = (b - a) / this.width > x(b, width) - px;
    g.drawImage(this.picture(), (a - this.from) / this.width, (first - this.first) / this.each, (b - a) / this.width, (last - first) / this.each, px, py, x(b, width) - px, y(last, l) - py);
  }
  column(time) { return Math.max(0, Math.min(this.columns - 1, Math.floor((time - this.from) / this.width))); }
}
const whole = new Grid(T.levels[0]);
let closer = null, calls = null, served = location.protocol.startsWith("http"), asked = "", timer = 0, wanted = null;
const exact = () => closer && closer.from === Math.floor(from) && closer.to === Math.min(END, Math.ceil(to)) && closer.first === r0 && closer.last === r1 ? closer : from === 0 && to === END && r0 === 0 && r1 === RANKS ? whole : null;
/* The calls themselves are drawn. */
const hasCalls = l => calls && calls.covers(from, to, r0, r1) && l.each >= 2;

levels.say = l => {
  const is = exact(), shown = is ? `${is.calls} calls in view` : served ? "adding up …" : "sums of the whole time";
  $("summary").textContent = hasCalls(l) ? `${shown}, each of them shown${calls.whole ? "" : "; waits and messages are shown in shorter stretches of time"}` : `${shown}: a summary. ${served ? "Closer (wheel, double click; [ and ] for ranks) each call is shown" : "This page has no single calls: margay view FILE serves them"}`;
};
levels.space = (g, l, width) => { whole.paint(g, l, width); if (closer && (closer.width < whole.width || closer.each < whole.each)) closer.paint(g, l, width); };
levels.hasCalls = hasCalls;
levels.hits = (g, l, width, height) => { for (const h of hits) { const px = x(h.start, width), py = y(h.rank, l); if (px >= LEFT && px <= width && py >= 20 && py < height) { g.beginPath(); g.moveTo(px, py); g.lineTo(px, py + Math.max(3, l.each)); g.stroke(); } } };
const fitting = () => closer && closer.covers(from, to, r0, r1) ? closer : whole;
levels.use = () => {
  const [g, width, height] = context("use"), of = fitting(), wide = 3;
  for (let p = 0; p < width - LEFT; p += wide) {
    const a = of.column(timeAt(LEFT + p, width)), b = Math.max(a + 1, of.column(timeAt(LEFT + p + wide, width))), parts = [1, 0, 0, 0, 0, 0];
    for (let k = 0; k < 5; k++) { for (let c = a; c < b; c++) parts[k + 1] += of.totals[5 * c + k] / (b - a); parts[0] -= parts[k + 1]; }
    let py = height;
    [1, 2, 3, 4, 5, 0].forEach(c => { const h = Math.max(0, parts[c]) * (height - 16); g.fillStyle = colors[CLASSES[c]]; g.fillRect(LEFT + p, py - h, wide, h); py -= h; });
  }
};
levels.queue = () => {
  const [g, width, height] = context("queue"), up = v => height - Math.max(0, v) / whole.most * (height - 20) - 2;
  g.fillStyle = colors.dim; g.fillText(whole.most, 4, 14); g.fillText("0", LEFT - 14, height - 4); g.strokeStyle = colors.send; g.beginPath();
  for (let px = LEFT; px < width; px++) { const a = whole.column(timeAt(px, width)), b = Math.max(a, whole.column(timeAt(px + 1, width)) - 1); let v = whole.queue[a]; for (let c = a + 1; c <= b; c++) v = Math.max(v, whole.queue[c]); g.lineTo(px, up(v)); }
  g.stroke();
};
/* Side panels: of the visible time once it is added up, and of the whole time in a page without a server. */
function panel() { return exact() || (served ? null : whole); }
const of = p => p === whole && !exact() ? " of the whole time" : "";
levels.kiviat = () => {
  const p = panel(); if (!p) return void ($("kiviat-text").textContent = "adding up …");
  const n = p.busy.length, count = Math.min(n, 360), shares = [];
  let sum = 0, least = 0, mostly = 0; p.busy.forEach((s, i) => { sum += 1 - s; if (s > p.busy[least]) least = i; if (s < p.busy[mostly]) mostly = i; });
  for (let k = 0; k < count; k++) { const a = Math.floor(k * n / count), b = Math.max(a + 1, Math.floor((k + 1) * n / count)); let s = 0; for (let i = a; i < b; i++) s += Math.max(0, 1 - p.busy[i]) / (b - a); shares.push(s); }
  drawShares(shares, k => p.first + Math.floor(k * n / count));
  $("kiviat-text").textContent = `Share of the time${of(p) || " shown"} that each rank computes: ${(sum / n * 100).toFixed(1)} % on average; rank ${p.first + mostly} most (${((1 - p.busy[mostly]) * 100).toFixed(1)} %), rank ${p.first + least} least (${((1 - p.busy[least]) * 100).toFixed(1)} %).`;
};
levels.matrix = () => {
  const p = panel(); if (!p) return void ($("matrix-text").textContent = "adding up …");
  const n = p.side, sum = new Float64Array(n * n); let count = 0, bytes = 0;
  for (const [place, messages, amount] of p.matrix) { sum[place] = amount + 1; count += messages; bytes += amount; }
  drawBytes(sum, n, k => p.first + Math.floor(k * p.busy.length / n));
  $("matrix-text").textContent = `Rows send, columns receive: ${count} messages, ${amount(bytes)}, sent${of(p) || " in the time shown"} among the ranks shown.`;
};
let tabled = null;
levels.table = () => {
  const p = panel(); if (!p || tabled === p) return; tabled = p;
  const waiting = new Map();
  if (p === closer && calls && calls.whole) for (const t of threads) for (let i = t.at(from), last = t.at(to); i < last; i++) if (t.wait[i]) waiting.set(t.site[i], (waiting.get(t.site[i]) || 0) + t.wait[i]);
  fillTable(p.sums.map(([site, calls, ns]) => [site, { calls, ns, wait: waiting.get(site) || 0 }]));
};
levels.doing = () => { const p = fitting(), c = p.column(cursor), n = p.last - p.first; return CLASSES.map((_, k) => Math.round(n * (k === 0 ? Math.max(0, 1 - p.totals.slice(5 * c, 5 * c + 5).reduce((a, b) => a + b, 0)) : k < 6 ? p.totals[5 * c + k - 1] : 0))); };
/* A click on the summary. */
levels.cell = (rank, time) => {
  const p = fitting(), row = Math.floor((rank - p.first) / p.each), c = p.column(time), at = 5 * (row * p.columns + c), last = Math.min(p.last, p.first + (row + 1) * p.each) - 1;
  if (row < 0 || row >= p.rows) return;
  const parts = [1, 2, 3, 4, 5].map(k => p.cells[at + k - 1] ? `${CLASSES[k] === "call" ? "other call" : CLASSES[k]} ${(p.cells[at + k - 1] / 2.55).toFixed(0)} %` : "").filter(Boolean), first = p.first + row * p.each;
  $("detail").textContent = `${first === last ? "rank " + first : `ranks ${first}-${last}`}, ${span(p.from + c * p.width)} to ${span(p.from + (c + 1) * p.width)}\nin calls: ${parts.join(", ") || "none"}\n${served ? "double click: closer" : ""}`; $("detail").classList.remove("dim");
};
levels.ranks = (factor, at) => { const n = Math.max(1, Math.min(RANKS, Math.round((r1 - r0) * factor) || 1)), part = (at - r0) / (r1 - r0); r0 = Math.max(0, Math.min(RANKS - n, Math.round(at - n * part))); r1 = r0 + n; redraw(); };
levels.move = by => { const n = r1 - r0, step = Math.sign(by) * Math.max(1, Math.round(Math.abs(by) * n)); r0 = Math.max(0, Math.min(RANKS - n, r0 + step)); r1 = r0 + n; redraw(); };
levels.all = () => { r0 = 0; r1 = RANKS; };
/* Asks for what is visible, once it stays. */
levels.ask = () => {
  const key = `part?from=${Math.floor(from)}&to=${Math.ceil(to)}&first=${r0}&last=${r1}`;
  if (!served || asked === key || (exact() === whole && !wanted)) return;
  asked = key; clearTimeout(timer);
  timer = setTimeout(async () => {
    try {
      const answer = await fetch(key); if (!answer.ok) throw new Error(await answer.text());
      const got = await answer.json(); if (asked !== key) return;
      closer = new Grid(got.grid[0]); calls = null;
      if (got.calls.length) { const { whole: hasAll, ...of } = got.calls[0]; load(of); calls = { whole: hasAll, from: closer.from, to: closer.to, first: r0, last: r1, covers: closer.covers }; }
      if (wanted && !calls && to - from > 200) { const l = (to - from) / 4; show(wanted.start - l / 2, wanted.start + l / 2); }
      if (wanted && calls) {
        // Several calls may begin at a time: those before the recorder did at 0.
        for (const t of ofRank.get(wanted.rank) || []) { let i = t.at(wanted.start); while (i < t.n && t.start[i] === wanted.start && wanted.site >= 0 && t.site[i] !== wanted.site) i++; if (i < t.n && t.start[i] === wanted.start) { select(t, i); break; } }
        wanted = null;
      }
      document.body.dataset.answered = key; redraw();
    } catch (error) { if (asked === key) { served = false; $("note").textContent = "the program that served this page has ended; " + error.message; redraw(); } }
  }, 120);
};
/* Shows a call among its neighbours. */
levels.go = (rank, start, ns, site) => {
  const n = Math.min(RANKS, 24); r0 = Math.max(0, Math.min(RANKS - n, rank - (n >> 1))); r1 = r0 + n; wanted = { rank, start, site };
  const length = Math.max(3 * ns, Math.min(to - from, END * Math.min(1, 1e5 / T.records))); asked = ""; show(start + ns / 2 - length / 2, start + ns / 2 + length / 2);
};
levels.worst = () => { const l = (exact() || whole).longest; if (l.ns) { cursor = l.start; levels.go(l.rank, l.start, l.ns, -1); } };
let searching = 0;
levels.search = words => {
  clearTimeout(searching); hits = []; hit = -1; redraw();
  const number = /^(rank|tag)\s*(-?\d+)$/.exec(words);
  if (!words) return void ($("hits").textContent = "");
  if (number && number[1] === "rank") { const rank = Math.max(0, Math.min(RANKS - 1, +number[2])), n = Math.min(RANKS, 24); r0 = Math.max(0, Math.min(RANKS - n, rank - (n >> 1))); r1 = r0 + n; $("hits").textContent = ""; return redraw(); }
  if (!served) return void ($("hits").textContent = "only in a page that margay view serves");
  const fits = T.sites.filter(s => (s.call + " " + s.at + " " + s.file).toLowerCase().includes(words)).map(s => "site=" + s.n);
  if (!number && !fits.length) return void ($("hits").textContent = "0 found");
  $("hits").textContent = "searching …";
  searching = setTimeout(async () => {
    try {
      const got = await (await fetch(`find?from=${Math.floor(from)}&${number ? "tag=" + (+number[2] >>> 0) : fits.join("&")}`)).json();
      hits = rows(got.hits).map(([start, rank, ns, site]) => ({ start, rank, ns, site })); $("hits").textContent = `${got.count} found` + (hits.length < got.count ? `, ${hits.length} from here on` : ""); redraw();
    } catch (error) { $("hits").textContent = error.message; }
  }, 300);
};
levels.next = by => { hit = (hit + by + hits.length) % hits.length; const h = hits[hit]; cursor = h.start; $("hits").textContent = `${hit + 1} of ${hits.length}`; levels.go(h.rank, h.start, h.ns, h.site); };
$("worst").textContent = "longest call"; $("worst").title = "the longest call (w)"; $("path").parentNode.hidden = true;
