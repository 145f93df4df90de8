"use strict";
// Events bring counters; this page keeps the last minutes of their differences and draws them.
// What an event does not have, its part of the page is hidden for.
(() => {
  // ---- small things ----------------------------------------------------------------------------
  const $ = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";

  function make(tag, fields = {}, ...inside) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(fields)) {
      if (name === "class") node.className = value;
      else if (name === "text") node.textContent = value;
      else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value);
    }
    node.append(...inside);
    return node;
  }
  function draw(tag, fields = {}) {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(fields)) node.setAttribute(name, value);
    return node;
  }
  function say(node, text) {
    if (node.textContent !== text) node.textContent = text;
  }
  function mark(node, name, value) {
    if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  }
  const store = {
    read(name) { try { return localStorage.getItem("millpond." + name); } catch { return null; } },
    write(name, value) { try { localStorage.setItem("millpond." + name, value); } catch { /* forbidden */ } },
  };

  // ---- numbers as texts ------------------------------------------------------------------------
  const grouped = new Intl.NumberFormat("en");
  function short(value) {
    if (!Number.isFinite(value)) return "–";
    const size = Math.abs(value);
    if (size >= 1e12) return (value / 1e12).toFixed(2) + " T";
    if (size >= 1e9) return (value / 1e9).toFixed(2) + " G";
    if (size >= 1e6) return (value / 1e6).toFixed(2) + " M";
    if (size >= 1e5) return (value / 1e3).toFixed(0) + " k";
    if (size >= 1e4) return (value / 1e3).toFixed(1) + " k";
    if (size >= 100 || Number.isInteger(value)) return grouped.format(Math.round(value));
    return value.toFixed(size >= 10 ? 1 : 2).replace(/\.?0+$/, "") || "0";
  }
  function bytes(value) {
    if (!Number.isFinite(value)) return "–";
    for (const [unit, power] of [["TiB", 4], ["GiB", 3], ["MiB", 2], ["KiB", 1]]) {
      const size = value / 1024 ** power;
      if (size >= 0.98) return size.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2) + " " + unit;
    }
    return Math.round(value) + " B";
  }
  function perSecond(value) {
    if (!Number.isFinite(value)) return "–";
    if (value === 0 || value >= 100) return short(Math.round(value)) + "/s";
    return value.toFixed(value < 0.1 ? 2 : 1) + "/s";
  }
  const bytesPerSecond = (value) => Number.isFinite(value) ? bytes(value) + "/s" : "–";
  function percent(value) {
    if (value === null || !Number.isFinite(value)) return "–";
    const hundred = value * 100;
    if (hundred > 99.9 && hundred < 100) return "99.9 %";
    return hundred.toFixed(hundred >= 99.95 || hundred === 0 ? 0 : 1) + " %";
  }
  function time(micros) {
    if (micros === null || !Number.isFinite(micros)) return "–";
    if (micros < 1000) return Math.round(micros) + " µs";
    if (micros < 1e6) return (micros / 1e3).toFixed(micros < 1e4 ? 1 : 0) + " ms";
    return (micros / 1e6).toFixed(micros < 1e7 ? 2 : 1) + " s";
  }
  function span(seconds) {
    if (seconds < 60) return Math.floor(seconds) + " s";
    if (seconds < 3600) return Math.floor(seconds / 60) + " min";
    if (seconds < 86400) return Math.floor(seconds / 3600) + " h " + Math.floor(seconds / 60 % 60) + " min";
    return Math.floor(seconds / 86400) + " d " + Math.floor(seconds / 3600 % 24) + " h";
  }
  const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");
  const ratio = (part, whole) => whole > 0 ? part / whole : null;

  // ---- what is known ---------------------------------------------------------------------------
  const KEPT = 900;            // samples: seconds of the longest chart
  const SPARK = 60;            // seconds of a sparkline
  const RATE = 10;             // seconds that rates are of
  const STATUS = {
    HIT: "hit", REVALIDATED: "revalidated", UPDATING: "updating", STALE: "stale",
    EXPIRED: "expired", MISS: "miss", BYPASS: "bypass", "-": "none",
  };
  const FROM_CACHE = ["HIT", "STALE", "UPDATING", "REVALIDATED"];
  const TIMES = [["first_byte", "All answers"], ["cached", "From the cache"], ["origin", "Origins"]];

  const CLASSES = [["1xx", "none"], ["2xx", "hit"], ["3xx", "updating"], ["4xx", "expired"], ["5xx", "failed"]];

  let last = null;             // the last event
  let beforeLast = null;       // the time of the event before that, of the same process
  let past = null;             // the last of the notes that were there when this page was opened
  const samples = [];          // differences: {t, seconds, requests{}, bytes{}, origin…, times{}}
  const sites = new Map();     // name → {now: row, past: [[t, row]…]}
  const counts = new Map();    // other things that rates are wanted of: key → [[t, numbers]…]
  let isPaused = false;
  let seconds = Number(store.read("span")) || 300;

  /// Difference of counters; those that began again count from zero.
  const more = (now, before) => now >= before ? now - before : now;

  function remember(list, t, value, keep) {
    list.push([t, value]);
    while (list.length > 2 && t - list[0][0] > keep * 1000 + 500) list.shift();
  }
  /// Rate of each number over the last seconds, from a list of [t, numbers].
  function rates(list, over = RATE) {
    const [t, now] = list[list.length - 1];
    let first = list[list.length - 1];
    for (let at = list.length - 1; at >= 0 && t - list[at][0] <= over * 1000 + 500; at--) first = list[at];
    const passed = (t - first[0]) / 1000;
    return now.map((value, index) => passed > 0 ? more(value, first[1][index]) / passed : NaN);
  }
  function rateOf(key, t, numbers) {
    let list = counts.get(key);
    if (!list) {
      counts.set(key, list = []);
      // What is new while this page looks on was nothing before.
      if (beforeLast !== null) list.push([beforeLast, numbers.map(() => 0)]);
    }
    if (!list.length || list[list.length - 1][0] !== t) remember(list, t, numbers, RATE);
    return rates(list);
  }

  /// The server's notes of the last minutes, where this page has seen none itself.
  function begin({ totals, ...facts }) {
    if (last !== null) return;
    samples.length = 0;
    past = null;
    for (const note of totals.map((one) => ({ ...facts, ...one }))) {
      if (past !== null && note.time > past.time) samples.push(difference(note, past, false));
      past = note;
    }
  }
  function take(event) {
    const isNew = last !== null && (last.started !== event.started || last.pid !== event.pid);
    if (isNew) { sites.clear(); counts.clear(); failing.clear(); }
    beforeLast = isNew ? event.started : last?.time ?? null;
    const before = last ?? past;
    if (before !== null && (isNew || event.time > before.time)) samples.push(difference(event, before, isNew));
    while (samples.length > KEPT) samples.shift();
    const seen = new Set();
    for (const [name, ...row] of event.sites ?? []) {
      seen.add(name);
      let site = sites.get(name);
      if (!site) {
        sites.set(name, site = { name, past: [] });
        if (last !== null && !isNew && !last.sites_left_out) site.past.push([last.time, row.slice(0, SAID).map(() => 0)]);
      }
      site.row = row;
      remember(site.past, event.time, row.slice(0, SAID), SPARK);
    }
    for (const name of sites.keys()) if (!seen.has(name)) sites.delete(name);
    last = event;
  }

  function difference(event, before, isNew) {
    const sample = { t: event.time, seconds: Math.max((event.time - before.time) / 1000, 0.001), requests: {}, bytes: {}, isNew };
    if (isNew) sample.seconds = Math.max((event.time - event.started) / 1000, 0.001);
    event.statuses.forEach((status, index) => {
      const [requests, sum] = event.answers[index];
      const [was, wasSum] = isNew ? [0, 0] : before.answers[index];
      sample.requests[status] = more(requests, was);
      sample.bytes[status] = more(sum, wasSum);
    });
    // Counters of sites, and so these, go on over a restart.
    sample.origin = more(event.origin.requests, before.origin.requests);
    sample.received = more(event.origin.received, before.origin.received);
    const counter = (name, index) => more(event[name]?.[index] ?? 0, isNew ? 0 : before[name]?.[index] ?? 0);
    sample.classes = Object.fromEntries(CLASSES.map(([name], index) => [name, counter("classes", index)]));
    sample.ends = [0, 1, 2].map((index) => counter("ends", index));
    sample.connections = event.connections.active;
    sample.stored = event.stored;
    if (isNew) sample.origin = sample.received = 0;
    sample.times = {};
    for (const [name] of TIMES) {
      const now = event.times?.[name];
      if (now) sample.times[name] = now.map((count, index) => isNew ? count : more(count, before.times?.[name]?.[index] ?? 0));
    }
    return sample;
  }

  /// Puts samples together.
  function merge(list) {
    const sum = { t: list[list.length - 1].t, seconds: 0, requests: {}, bytes: {}, origin: 0, received: 0, connections: 0, stored: 0, times: {}, isNew: false,
      classes: {}, ends: [0, 0, 0] };
    for (const sample of list) {
      sum.seconds += sample.seconds;
      for (const status in sample.requests) {
        sum.requests[status] = (sum.requests[status] ?? 0) + sample.requests[status];
        sum.bytes[status] = (sum.bytes[status] ?? 0) + sample.bytes[status];
      }
      for (const name in sample.classes) sum.classes[name] = (sum.classes[name] ?? 0) + sample.classes[name];
      sum.ends = sum.ends.map((count, index) => count + sample.ends[index]);
      sum.origin += sample.origin;
      sum.received += sample.received;
      sum.connections = Math.max(sum.connections, sample.connections);
      sum.stored = sample.stored;
      sum.isNew ||= sample.isNew;
      for (const name in sample.times) {
        sum.times[name] = sample.times[name].map((count, index) => count + (sum.times[name]?.[index] ?? 0));
      }
    }
    return sum;
  }
  /// The samples of the last seconds: notes from before this page are of ten each.
  function recent(seconds) {
    let passed = 0, at = samples.length;
    while (at > 0 && (at === samples.length || passed + samples[at - 1].seconds <= seconds + 0.5)) passed += samples[--at].seconds;
    return samples.slice(at);
  }
  const recently = () => samples.length ? merge(recent(RATE)) : null;
  const total = (numbers) => Object.values(numbers).reduce((sum, value) => sum + value, 0);
  function hitRatio(numbers) {
    const asked = total(numbers) - (numbers["-"] ?? 0);
    return ratio(FROM_CACHE.reduce((sum, status) => sum + (numbers[status] ?? 0), 0), asked);
  }
  /// A quantile of a histogram, interpolated in its bucket; microseconds.
  function quantile(buckets, part) {
    const bounds = last.times.bounds_us;
    const all = buckets ? buckets.reduce((sum, count) => sum + count, 0) : 0;
    if (all === 0) return null;
    let below = 0;
    for (let index = 0; index < buckets.length; index++) {
      const upto = below + buckets[index];
      if (upto >= part * all && buckets[index] > 0) {
        const low = index > 0 ? bounds[index - 1] : 0;
        const high = bounds[index] ?? low;
        return low + (high - low) * (part * all - below) / buckets[index];
      }
      below = upto;
    }
    return bounds[bounds.length - 1];
  }

  // ---- charts ----------------------------------------------------------------------------------
  const HEIGHT = 190, LEFT = 58, BOTTOM = 18, TOP = 8, POINTS = 240;

  /// A round number that is not below this one.
  function roundUp(value, isBytes) {
    if (!(value > 0)) return 1;
    const base = isBytes ? 1024 ** Math.floor(Math.log(value) / Math.log(1024)) : 1;
    const unit = base * 10 ** Math.floor(Math.log10(value / base));
    return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((step) => step * unit).find((step) => step >= value) ?? 10 * unit;
  }

  class Chart {
    /// `series`: [{name, color, of(sample)}]; `kind`: stack or lines.
    constructor({ title, axis, kind, series, format, most, isBytes, isLog, choice }) {
      Object.assign(this, { title, kind, series, format, most, isBytes, isLog, hidden: new Set(), at: null });
      this.title = make("h3", { text: title });
      this.svg = draw("svg", { role: "img", tabindex: "0", focusable: "true" });
      this.tip = make("div", { class: "tip", hidden: "" });
      this.legend = make("ul", { class: "legend" });
      const axes = make("p", { class: "axis", text: `${axis} (up), time before now (across)` });
      const top = make("div", { class: "top" }, make("div", {}, this.title, axes), ...(choice ? [choice] : []));
      this.node = make("div", { class: "chart" }, top, make("div", { class: "plot" }, this.svg, this.tip), this.legend);
      this.buttons = series.map((one) => this.legendButton(one));
      this.svg.addEventListener("pointermove", (event) => this.point(event));
      this.svg.addEventListener("pointerleave", () => this.read(null));
      this.svg.addEventListener("blur", () => this.read(null));
      this.svg.addEventListener("keydown", (event) => this.key(event));
    }
    legendButton(one) {
      const value = make("b");
      const button = make("button", { type: "button", "aria-pressed": "true" }, one.name, value);
      button.style.setProperty("--swatch", `var(--${one.color})`);
      button.addEventListener("click", () => {
        if (!this.hidden.delete(one)) this.hidden.add(one);
        mark(button, "aria-pressed", String(!this.hidden.has(one)));
        this.show();
      });
      this.legend.append(make("li", {}, button));
      return value;
    }
    /// The samples to be drawn, at most so many.
    points() {
      const from = last.time - seconds * 1000;
      const shown = samples.filter((sample) => sample.t >= from);
      const group = Math.max(1, Math.ceil(seconds / POINTS));
      const points = [];
      let many = [];
      for (const sample of shown) {
        if (many.length && Math.floor(many[0].t / 1000 / group) !== Math.floor(sample.t / 1000 / group)) {
          points.push(merge(many));
          many = [];
        }
        many.push(sample);
      }
      if (many.length) points.push(merge(many));
      // Where nothing came for long, the average of that time is level.
      const isLong = (point) => point.seconds > 2 * group + 3 && !point.isNew;
      return points.flatMap((point) => isLong(point) ? [{ ...point, t: point.t - point.seconds * 1000 + 500 }, point] : [point]);
    }
    /// From where to where values are drawn.
    setScale(series, values) {
      const sums = this.list.map((_, index) => values.reduce((sum, row) => sum + (row[index] ?? 0), 0));
      const all = values.flat().filter((value) => value !== null && Number.isFinite(value));
      const highest = Math.max(0, ...(this.kind === "stack" ? sums : all));
      const lowest = Math.min(Infinity, ...all);
      this.top = this.most ?? roundUp(highest * 1.02, this.isBytes);
      this.base = 0;
      // A ratio that is high all the time is drawn from higher up, so that its changes are seen.
      if (this.most && all.length) this.base = [0.9, 0.5].find((base) => lowest >= base) ?? 0;
      if (this.isLog) {
        this.base = 10 ** Math.floor(Math.log10(Math.max(all.length ? lowest : 100, 1)));
        this.top = Math.max(10 ** Math.ceil(Math.log10(Math.max(highest, 1))), this.base * 100);
      }
    }
    show() {
      if (!last) return;
      this.width = Math.max(this.svg.clientWidth || 500, 200);
      mark(this.svg, "viewBox", `0 0 ${this.width} ${HEIGHT}`);
      this.list = this.points();
      const series = this.series.filter((one) => !this.hidden.has(one));
      const values = series.map((one) => this.list.map(one.of));
      this.setScale(series, values);
      const parts = this.grid();
      if (this.kind === "stack") parts.push(...this.areas(series, values));
      else parts.push(...series.map((one, index) => this.line(one, values[index])));
      for (const sample of this.list) if (sample.isNew) {
        const x = this.x(sample.t);
        parts.push(draw("line", { class: "mark", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }));
      }
      this.cross = draw("line", { class: "cross", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
      this.svg.replaceChildren(...parts, this.cross);
      const now = recently();
      this.series.forEach((one, index) => say(this.buttons[index], now ? this.format(one.of(now)) : ""));
      const told = this.series.map((one) => `${one.name} ${now ? this.format(one.of(now)) : "–"}`);
      mark(this.svg, "aria-label", `${this.title.textContent}, now: ${told.join(", ")}`);
      if (this.at !== null) this.read(this.at);
    }
    x(t) { return LEFT + Math.max(0, 1 - (last.time - t) / 1000 / seconds) * (this.width - LEFT - 6); }
    y(value) {
      const part = this.isLog ? Math.log(Math.max(value, this.base) / this.base) / Math.log(this.top / this.base)
        : (value - this.base) / (this.top - this.base);
      return HEIGHT - BOTTOM - Math.min(part, 1) * (HEIGHT - BOTTOM - TOP);
    }
    grid() {
      const parts = [];
      const levels = [0, 0.5, 1].map((part) => this.base + part * (this.top - this.base));
      if (this.isLog) {
        levels.length = 0;
        for (let level = this.base; level <= this.top * 1.01; level *= 10) levels.push(level);
      }
      for (const value of levels) {
        const y = this.y(value);
        parts.push(draw("line", { class: "grid", x1: LEFT, x2: this.width - 6, y1: y, y2: y }));
        const label = draw("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" });
        label.textContent = this.format(value).replace(/\/s$/, "");
        parts.push(label);
      }
      for (const part of [0, 0.5, 1]) {
        const anchor = part === 0 ? "start" : part === 1 ? "end" : "middle";
        const label = draw("text", { x: LEFT + part * (this.width - LEFT - 6), y: HEIGHT - 4, "text-anchor": anchor });
        const ago = (1 - part) * seconds;
        label.textContent = ago === 0 ? "now" : ago % 60 ? `−${ago} s` : `−${ago / 60} min`;
        parts.push(label);
      }
      return parts;
    }
    areas(series, values) {
      let below = this.list.map(() => 0);
      return series.map((one, at) => {
        const above = below.map((value, index) => value + (values[at][index] ?? 0));
        const up = above.map((value, index) => `${this.x(this.list[index].t).toFixed(1)},${this.y(value).toFixed(1)}`);
        const down = below.map((value, index) => `${this.x(this.list[index].t).toFixed(1)},${this.y(value).toFixed(1)}`);
        below = above;
        return draw("polygon", { points: up.concat(down.reverse()).join(" "), fill: `var(--${one.color})`, "fill-opacity": "0.88" });
      });
    }
    line(one, values) {
      let path = "", isOn = false;
      values.forEach((value, index) => {
        if (value === null || !Number.isFinite(value)) { isOn = false; return; }
        path += `${isOn ? "L" : "M"}${this.x(this.list[index].t).toFixed(1)},${this.y(value).toFixed(1)}`;
        isOn = true;
      });
      return draw("path", { d: path, fill: "none", stroke: `var(--${one.color})`, "stroke-width": "2", "stroke-linejoin": "round", "stroke-linecap": "round" });
    }
    point(event) {
      if (!this.list?.length) return;
      const x = event.clientX - this.svg.getBoundingClientRect().left;
      const t = last.time - (1 - (x - LEFT) / (this.width - LEFT - 6)) * seconds * 1000;
      const near = this.list.reduce((best, sample) => Math.abs(sample.t - t) < Math.abs(best.t - t) ? sample : best);
      this.read(near.t);
    }
    key(event) {
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
      if (event.key === "Escape") return this.read(null);
      if (step === undefined || !this.list?.length) return;
      event.preventDefault();
      const end = this.list.length - 1;
      let index = this.at === null ? end + (step < 0 ? 1 : 0) : this.nearest(this.at);
      index = Math.min(Math.max(index + step, 0), end);
      this.read(this.list[index].t);
    }
    nearest(t) {
      let best = 0;
      this.list.forEach((sample, index) => { if (Math.abs(sample.t - t) < Math.abs(this.list[best].t - t)) best = index; });
      return best;
    }
    /// Shows the values at a moment, or none.
    read(t) {
      this.at = t;
      this.tip.hidden = t === null || !this.list?.length;
      if (this.tip.hidden) return this.cross?.setAttribute("visibility", "hidden");
      const sample = this.list[this.nearest(t)];
      const x = this.x(sample.t);
      mark(this.cross, "x1", x); mark(this.cross, "x2", x); mark(this.cross, "visibility", "visible");
      const facts = make("dl");
      for (const one of this.kind === "stack" ? [...this.series].reverse() : this.series) {
        const value = one.of(sample);
        if (this.hidden.has(one) || value === null || (this.kind === "stack" && value === 0)) continue;
        const name = make("dt", { text: one.name });
        name.style.setProperty("--swatch", `var(--${one.color})`);
        facts.append(name, make("dd", { text: this.format(value) }));
      }
      this.tip.replaceChildren(make("div", { class: "soft", text: clock(sample.t) + (sample.isNew ? " server started" : "") }), facts);
      const isRight = x > this.width / 2;
      this.tip.style.left = isRight ? "" : `${x + 10}px`;
      this.tip.style.right = isRight ? `${this.width - x + 10}px` : "";
    }
  }

  const byStatus = (of) => Object.entries(STATUS).map(([status, color]) => ({
    name: status === "-" ? "not cached" : status, color, of: (sample) => (sample[of][status] ?? 0) / sample.seconds,
  }));
  let timesOf = "first_byte";
  const timeSeries = [["p50", 0.5, "one"], ["p90", 0.9, "two"], ["p99", 0.99, "three"]].map(([name, part, color]) => ({
    name, color, of: (sample) => quantile(sample.times[timesOf], part),
  }));
  const timesChoice = make("div", { class: "choice", role: "group", "aria-label": "Times of what" },
    ...TIMES.map(([name, title]) => make("button", {
      type: "button", "data-times": name, "aria-pressed": String(name === timesOf), text: title,
      onclick: () => {
        timesOf = name;
        for (const button of timesChoice.children) mark(button, "aria-pressed", String(button.dataset.times === name));
        charts.times.show();
      },
    })));
  const charts = {
    requests: new Chart({ title: "Requests by cache status", axis: "answers per second", kind: "stack", series: byStatus("requests"), format: perSecond }),
    classes: new Chart({ title: "Answers by class of status", axis: "answers per second", kind: "stack", format: perSecond,
      series: CLASSES.map(([name, color]) => ({ name, color, of: (sample) => (sample.classes[name] ?? 0) / sample.seconds })) }),
    bytes: new Chart({ title: "Bytes sent by cache status", axis: "bytes per second", kind: "stack", series: byStatus("bytes"), format: bytesPerSecond, isBytes: true }),
    ratio: new Chart({ title: "Hit ratio", axis: "part that came from the cache", kind: "lines", format: percent, most: 1, series: [
      { name: "of requests", color: "hit", of: (sample) => hitRatio(sample.requests) },
      { name: "of bytes", color: "two", of: (sample) => hitRatio(sample.bytes) },
    ] }),
    times: new Chart({ title: "Time to the first byte", axis: "time, each line ten times the one below", kind: "lines", isLog: true, format: time, series: timeSeries, choice: timesChoice }),
    origin: new Chart({ title: "Exchanges with origins", axis: "exchanges per second", kind: "stack", format: perSecond, series: [
      { name: "answered", color: "hit", of: (sample) => sample.ends[0] / sample.seconds },
      { name: "answered 5xx", color: "expired", of: (sample) => sample.ends[1] / sample.seconds },
      { name: "failed", color: "failed", of: (sample) => sample.ends[2] / sample.seconds },
    ] }),
    received: new Chart({ title: "Bytes from origins", axis: "bytes per second", kind: "stack", format: bytesPerSecond, isBytes: true, series: [
      { name: "received", color: "expired", of: (sample) => sample.received / sample.seconds },
    ] }),
  };
  $("charts").append(...Object.values(charts).map((chart) => chart.node));

  /// A small line without axes; `values` oldest first.
  function sparkline(svg, values, color) {
    const most = Math.max(...values, 1e-9), count = Math.max(values.length - 1, 1);
    const points = values.map((value, index) => `${(index / count * 100).toFixed(1)},${(19 - value / most * 17).toFixed(1)}`).join(" ");
    if (!svg.firstChild) {
      mark(svg, "viewBox", "0 0 100 20");
      mark(svg, "preserveAspectRatio", "none");
      mark(svg, "aria-hidden", "true");
      svg.append(draw("polygon", { fill: color, "fill-opacity": "0.18" }),
        draw("polyline", { fill: "none", stroke: color, "stroke-width": "1.5", "vector-effect": "non-scaling-stroke" }));
    }
    if (values.length > 1) {
      mark(svg.firstChild, "points", `0,20 ${points} 100,20`);
      mark(svg.lastChild, "points", points);
    }
  }

  // ---- tiles -----------------------------------------------------------------------------------
  const tiles = new Map();
  function tile(title, value, note, of, color) {
    let one = tiles.get(title);
    if (!one) {
      one = { value: make("strong"), note: make("small"), svg: draw("svg") };
      const node = make("div", { class: "tile" }, make("h3", { text: title }), one.value, one.note, one.svg);
      tiles.set(title, one);
      $("tiles").append(node);
    }
    say(one.value, value);
    say(one.note, note);
    sparkline(one.svg, recent(SPARK).map((sample) => of(sample) ?? 0), `var(--${color})`);
  }
  function showTiles() {
    const now = recently();
    const rate = (value) => now ? value / now.seconds : NaN;
    const since = {}, sinceBytes = {};
    last.statuses.forEach((status, index) => [since[status], sinceBytes[status]] = last.answers[index]);
    const requests = now ? total(now.requests) : NaN, sent = now ? total(now.bytes) : NaN;
    tile("Hit ratio", percent(hitRatio(now?.requests ?? since)), `of bytes ${percent(hitRatio(now?.bytes ?? sinceBytes))}`,
      (sample) => hitRatio(sample.requests), "hit");
    tile("Requests", perSecond(rate(requests)), `${short(total(since))} since the start`, (sample) => total(sample.requests) / sample.seconds, "one");
    tile("Sent", bytesPerSecond(rate(sent)), `${bytes(total(sinceBytes))} since the start`, (sample) => total(sample.bytes) / sample.seconds, "two");
    const failed = now ? now.classes["5xx"] : NaN;
    tile("Answered 5xx", perSecond(rate(failed)), requests > 0 ? `${percent(failed / total(now.classes))} of all answers` : "no answers now",
      (sample) => sample.classes["5xx"] / sample.seconds, "failed");
    const asked = now ? (now.origin > 0 ? `one for ${short(requests / now.origin)} requests` : "none now") : "";
    tile("To origins", perSecond(rate(now?.origin)), asked, (sample) => sample.origin / sample.seconds, "miss");
    const saved = now && sent > 0 ? `${percent(Math.max(0, 1 - now.received / sent))} of bytes saved` : "";
    tile("From origins", bytesPerSecond(rate(now?.received)), saved, (sample) => sample.received / sample.seconds, "expired");
    if (last.times) {
      const all = now?.times.first_byte;
      tile("First byte, p99", time(all ? quantile(all, 0.99) : null), `p50 ${time(all ? quantile(all, 0.5) : null)}`,
        (sample) => quantile(sample.times.first_byte, 0.99), "three");
    }
    tile("Connections", grouped.format(last.connections.active), `${grouped.format(last.connections.current)} with a request`,
      (sample) => sample.connections, "stale");
    const entries = (last.zones ?? []).reduce((sum, zone) => sum + zone.records, 0);
    const live = (last.zones ?? []).reduce((sum, zone) => sum + zone.live_bytes, 0);
    tile("On disk", bytes(last.stored), `${bytes(live)} live in ${short(entries)} entries`, (sample) => sample.stored, "updating");
  }

  // ---- tables ----------------------------------------------------------------------------------
  /// A table whose rows stay where they are while their texts change.
  class Table {
    /// `columns`: [{title, text(row), sort?(row), class?, fill?(cell, row)}]; the first one names the row.
    constructor(box, { caption, columns, key, sort, most, none, more }) {
      Object.assign(this, { columns, key, sort, most, none, more, rows: new Map(), order: [], sorted: 0, isAll: false });
      this.body = make("tbody");
      this.heads = columns.map((column, index) => this.head(column, index));
      this.table = make("table", { "aria-label": caption }, make("thead", {}, make("tr", {}, ...this.heads)), this.body);
      mark(box, "tabindex", "0"); mark(box, "role", "region"); mark(box, "aria-label", caption);
      box.append(this.table);
      this.table.addEventListener("pointerenter", () => this.isHeld = true);
      this.table.addEventListener("pointerleave", () => this.isHeld = false);
      if (more) more.onclick = () => { this.isAll = !this.isAll; this.sorted = 0; this.show(this.given); };
      this.tell();
    }
    head(column, index) {
      const kind = (index === 0 ? "main " : "") + (column.class ?? "");
      if (!this.sort || !column.sort) return make("th", { scope: "col", class: kind, text: column.title });
      const button = make("button", { type: "button", text: column.title });
      button.addEventListener("click", () => {
        const isSame = this.sort.column === column.title;
        const first = column.class?.startsWith("text") ? 1 : -1;
        this.sort = { column: column.title, way: isSame ? -this.sort.way : first };
        this.sorted = 0;
        this.tell();
        this.show(this.given);
      });
      return make("th", { scope: "col", class: kind }, button);
    }
    tell() {
      this.heads.forEach((head, index) => {
        const isIt = this.sort?.column === this.columns[index].title;
        if (isIt) mark(head, "aria-sort", this.sort.way > 0 ? "ascending" : "descending");
        else head.removeAttribute("aria-sort");
      });
    }
    /// Sorts now and then only, and not under the pointer, so that rows can be read and clicked.
    sortRows(list) {
      const column = this.columns.find((one) => one.title === this.sort?.column);
      if (!column) return list;
      const now = performance.now();
      const places = new Map(this.order.map((key, index) => [key, index]));
      const isSettled = this.sorted > 0 && (this.isHeld || now - this.sorted < 3000);
      const by = (row) => column.sort(row);
      const compare = (a, b) => {
        const [x, y] = [by(a), by(b)];
        if (typeof x === "string") return this.sort.way * x.localeCompare(y);
        const difference = (Number.isFinite(x) ? x : -1) - (Number.isFinite(y) ? y : -1);
        return this.sort.way * difference || this.key(a).localeCompare(this.key(b));
      };
      const place = (row) => places.get(this.key(row)) ?? Infinity;
      const sorted = [...list].sort((a, b) => isSettled && place(a) !== place(b) ? place(a) - place(b) : compare(a, b));
      if (!isSettled) this.sorted = now;
      this.order = sorted.map(this.key);
      return sorted;
    }
    show(list) {
      if (!list) return;
      this.given = list;
      const sorted = this.sortRows(list);
      const shown = this.most && !this.isAll ? sorted.slice(0, this.most) : sorted;
      const kept = new Set();
      let place = this.body.firstChild;
      for (const row of shown) {
        const key = this.key(row);
        kept.add(key);
        let node = this.rows.get(key);
        if (!node) this.rows.set(key, node = this.makeRow());
        this.fill(node, row);
        if (node.node === place) place = place.nextSibling;
        else this.body.insertBefore(node.node, place);
      }
      for (const [key, node] of this.rows) if (!kept.has(key)) { node.node.remove(); this.rows.delete(key); }
      this.tellNone(shown.length === 0);
      if (this.more) {
        this.more.hidden = list.length <= this.most;
        say(this.more, this.isAll ? `Show the first ${this.most}` : `Show all ${list.length}`);
      }
    }
    tellNone(isEmpty) {
      if (isEmpty && !this.empty) {
        this.empty = make("tr", {}, make("td", { class: "empty", colspan: String(this.columns.length), text: this.none }));
        this.body.append(this.empty);
      } else if (!isEmpty && this.empty) {
        this.empty.remove();
        this.empty = null;
      }
    }
    makeRow() {
      const cells = this.columns.map((column, index) => make("td", { class: (index === 0 ? "main " : "") + (column.class ?? ""), "data-title": column.title }));
      return { node: make("tr", {}, ...cells), cells };
    }
    fill(node, row) {
      this.columns.forEach((column, index) => {
        const cell = node.cells[index];
        if (column.fill) return column.fill(cell, row);
        const text = column.text(row);
        say(cell, text);
        if (index === 0 || column.class?.includes("said")) mark(cell, "title", text);
      });
    }
  }
  /// A bar with a part of it filled.
  function meter(box, part, label) {
    let bar = box.querySelector(".meter");
    if (!bar) {
      bar = make("div", { class: "meter", role: "meter", "aria-valuemin": "0", "aria-valuemax": "100" }, make("i"));
      box.append(bar);
    }
    const hundred = Math.min(Math.max(part, 0), 1) * 100;
    bar.firstChild.style.width = hundred.toFixed(1) + "%";
    mark(bar, "aria-valuenow", hundred.toFixed(0));
    mark(bar, "aria-label", label);
    return bar;
  }
  function badge(box, text, kind) {
    let node = box.querySelector(".badge");
    if (!node) box.append(node = make("span"));
    mark(node, "class", "badge " + kind);
    say(node, text);
  }

  // Rows of sites: requests, bytes, asked, hits, bytes from the cache, exchanges, bytes received, entries, bytes held, what is said of them.
  const [REQUESTS, BYTES, ASKED, HITS, CACHED, EXCHANGES, RECEIVED, ENTRIES, HELD, SAID] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
  const siteName = (site) => site.name === "-" ? "(no name)" : site.name === "*" ? "(all others)" : site.name;
  let siteTable = null, described = null;
  /// The table, with a column for each word that is said of sites.
  function makeSiteTable(words) {
    const box = $("sites").querySelector(".scroll");
    const sort = siteTable?.sort ?? { column: "Requests", way: -1 };
    described = words.join();
    box.replaceChildren();
    siteTable = new Table(box, {
    caption: "Sites", key: (site) => site.name, sort, most: 50,
    none: "No site.", more: $("sites-more"),
    columns: [
      { title: "Site", class: "text", text: siteName, sort: siteName },
      ...words.map((word, index) => {
        const said = (site) => site.row[SAID]?.[index] ?? "";
        return { title: word.slice(0, 1).toUpperCase() + word.slice(1), class: "text said", text: said, sort: said };
      }),
      { title: "Requests", text: (site) => perSecond(site.rates[REQUESTS]), sort: (site) => site.rates[REQUESTS] },
      { title: "Hit ratio", text: (site) => percent(site.ratio), sort: (site) => site.ratio ?? -1 },
      { title: "Last minute", class: "spark", fill: (cell, site) => {
        if (!cell.firstChild) cell.append(draw("svg"));
        sparkline(cell.firstChild, site.line, "var(--accent)");
      } },
      { title: "Sent", text: (site) => bytesPerSecond(site.rates[BYTES]), sort: (site) => site.rates[BYTES] },
      { title: "To origin", text: (site) => perSecond(site.rates[EXCHANGES]), sort: (site) => site.rates[EXCHANGES] },
      { title: "From origin", text: (site) => bytesPerSecond(site.rates[RECEIVED]), sort: (site) => site.rates[RECEIVED] },
      { title: "All requests", text: (site) => short(site.row[REQUESTS]), sort: (site) => site.row[REQUESTS] },
      { title: "All bytes", text: (site) => bytes(site.row[BYTES]), sort: (site) => site.row[BYTES] },
      { title: "Entries", text: (site) => short(site.row[ENTRIES]), sort: (site) => site.row[ENTRIES] },
      { title: "Held", text: (site) => bytes(site.row[HELD]), sort: (site) => site.row[HELD] },
      { title: "Of bytes cached", text: (site) => percent(ratio(site.row[CACHED], site.row[BYTES])), sort: (site) => ratio(site.row[CACHED], site.row[BYTES]) ?? -1 },
    ],
    });
  }
  function showSites() {
    $("sites").hidden = !last.sites;
    if (!last.sites) return;
    const wanted = $("filter").value.trim().toLowerCase();
    const all = [...sites.values()];
    if (siteTable === null || described !== (last.descriptions ?? []).join()) makeSiteTable(last.descriptions ?? []);
    const words = (site) => [siteName(site), ...site.row[SAID] ?? []];
    const has = (site) => words(site).some((word) => word.toLowerCase().includes(wanted));
    const list = wanted ? all.filter(has) : all;
    for (const site of list) {
      site.rates = rates(site.past);
      site.ratio = ratio(site.rates[HITS], site.rates[ASKED]) ?? ratio(site.row[HITS], site.row[ASKED]);
      site.line = site.past.slice(1).map(([t, row], index) => {
        const [before, was] = site.past[index];
        return more(row[REQUESTS], was[REQUESTS]) / Math.max((t - before) / 1000, 0.001);
      });
    }
    siteTable.none = wanted ? "No site has that in its name or description." : "No site was asked for anything yet.";
    siteTable.show(list);
    const left = last.sites_left_out ? `, ${grouped.format(last.sites_left_out)} with fewer requests left out` : "";
    say($("sites-count"), (wanted ? `${list.length} of ${all.length}` : `${all.length}`) + left);
  }

  const zoneTable = new Table($("status-zones").querySelector(".scroll"), {
    caption: "Status zones", key: (zone) => zone.kind + " " + zone.name, sort: { column: "Requests", way: -1 }, none: "No status zone.",
    columns: [
      { title: "Zone", class: "text", text: (zone) => zone.name, sort: (zone) => zone.name },
      { title: "Of", class: "text", text: (zone) => zone.kind + "s", sort: (zone) => zone.kind },
      { title: "Requests", text: (zone) => perSecond(zone.rates[0]), sort: (zone) => zone.rates[0] },
      { title: "Now", text: (zone) => zone.processing === null ? "–" : grouped.format(zone.processing), sort: (zone) => zone.processing ?? -1 },
      { title: "4xx", text: (zone) => perSecond(zone.rates[1]), sort: (zone) => zone.rates[1] },
      { title: "5xx", text: (zone) => perSecond(zone.rates[2]), sort: (zone) => zone.rates[2] },
      { title: "Sent", text: (zone) => bytesPerSecond(zone.rates[3]), sort: (zone) => zone.rates[3] },
      { title: "Received", text: (zone) => bytesPerSecond(zone.rates[4]), sort: (zone) => zone.rates[4] },
      { title: "All requests", text: (zone) => short(zone.requests), sort: (zone) => zone.requests },
      { title: "Discarded", text: (zone) => short(zone.discarded), sort: (zone) => zone.discarded },
    ],
  });
  function showStatusZones() {
    const zones = last.status_zones ?? [];
    $("status-zones").hidden = zones.length === 0;
    for (const zone of zones) {
      const numbers = [zone.requests, zone.classes[3], zone.classes[4], zone.sent, zone.received];
      zone.rates = rateOf("status zone " + zoneTable.key(zone), last.time, numbers);
    }
    zoneTable.show(zones);
  }

  /// Nodes of all fleets. What a node says of itself is as old as its beat, so both times count.
  const NODE = { silent: ["silent", "bad"], behind: ["behind", "bad"], starting: ["starting", "warn"], live: ["up to date", "good"] };
  function standing(node) {
    if (!node.is_live) return "silent";
    if (node.lag_ms === null) return node.version === null ? "live" : "starting";
    return node.lag_ms > node.max_lag_ms ? "behind" : "live";
  }
  const inSeconds = (ms) => ms === null ? "–" : `${(ms / 1000).toFixed(1)} s`;
  const fleetTable = new Table($("fleets").querySelector(".scroll"), {
    caption: "Nodes of the fleet", key: (node) => node.fleet + " " + node.name, sort: { column: "Node", way: 1 }, none: "No node was heard of.",
    columns: [
      { title: "Node", class: "text", text: (node) => node.name + (node.is_own ? " (this one)" : ""), sort: (node) => node.name },
      { title: "Fleet", class: "text", text: (node) => node.fleet, sort: (node) => node.fleet },
      { title: "State", class: "text", fill: (cell, node) => badge(cell, ...NODE[node.state]), sort: (node) => node.state },
      { title: "Lag", text: (node) => inSeconds(node.lag_ms), sort: (node) => node.lag_ms ?? Infinity },
      { title: "Position", text: (node) => grouped.format(node.taken), sort: (node) => node.taken },
      { title: "Heard of", text: (node) => inSeconds(node.heard_ms_ago) + " ago", sort: (node) => node.heard_ms_ago },
      { title: "Version", class: "text", text: (node) => node.version ?? "–", sort: (node) => node.version ?? "" },
      { title: "Owns keys at", class: "text", text: (node) => node.address ?? "–", sort: (node) => node.address ?? "" },
      { title: "Weight", text: (node) => node.weight ?? "–", sort: (node) => node.weight ?? 0 },
      { title: "Pool", class: "text", text: (node) => node.pool ?? "–", sort: (node) => node.pool ?? "" },
    ],
  });
  function showFleets() {
    const fleets = last.fleets ?? [];
    $("fleets").hidden = fleets.length === 0;
    fleetTable.show(fleets.flatMap((fleet) => fleet.nodes.map((node) => {
      const is_own = node.name === fleet.node;
      // This one is known to the moment, others by what they said.
      const lag_ms = is_own ? fleet.lag_ms : node.lag_ms;
      const row = { ...node, lag_ms, is_own, fleet: fleet.name, max_lag_ms: fleet.max_lag_ms };
      return { ...row, state: standing(row) };
    })));
  }

  /// Configuration that fleets give: what each node has made of the newest orders, by its own words.
  const STATE = {
    settled: "good", held: "good", applying: "warn", watched: "warn", waiting: "warn", refused: "bad", back: "bad",
  };
  const ORDERS_SHOWN = 3;
  const revisionOf = (number) => number === 0 ? "its own file" : grouped.format(number);
  const rolloutTable = new Table($("rollout").querySelector(".scroll"), {
    caption: "Configuration of the nodes", key: (node) => node.fleet + " " + node.name, sort: { column: "Node", way: 1 }, none: "No node has told of its configuration.",
    columns: [
      { title: "Node", class: "text", text: (node) => node.name + (node.is_own ? " (this one)" : ""), sort: (node) => node.name },
      { title: "Fleet", class: "text", text: (node) => node.fleet, sort: (node) => node.fleet },
      { title: "State", class: "text", fill: (cell, node) => badge(cell, node.is_live ? node.state : "silent", node.is_live ? STATE[node.state] ?? "warn" : "bad"), sort: (node) => node.state },
      { title: "Has revision", text: (node) => revisionOf(node.revision), sort: (node) => node.revision },
      { title: "State is about", text: (node) => node.about === 0 ? "–" : grouped.format(node.about), sort: (node) => node.about },
      { title: "Reason", class: "text", text: (node) => node.reason || "–", sort: (node) => node.reason },
    ],
  });
  function orderText(order) {
    const what = order.kind === "push" ? `Revision ${order.revision}` : `Revision ${order.revision}, ${order.kind} of ${order.of}`;
    const first = order.canaries.length === 0 ? "for all at once"
      : `tried first by ${order.canaries.slice(0, 5).join(", ")}${order.canaries.length > 5 ? ` and ${order.canaries.length - 5} more` : ""}`;
    const end = order.verdict === "promoted" ? `, promoted to all by ${order.reason}`
      : order.verdict === "back" ? `, taken back by ${order.reason}` : order.canaries.length > 0 ? ", being tried" : "";
    return `${what} (${new Date(order.made_ms).toLocaleString()}): ${first}${end}`;
  }
  function showRollout() {
    const given = (last.fleets ?? []).filter((fleet) => fleet.config);
    $("rollout").hidden = given.length === 0;
    const orders = given.flatMap((fleet) => fleet.config.orders.slice(0, ORDERS_SHOWN).map((order) => ({
      text: orderText(order), class: order.verdict === "back" ? "bad" : "",
    })));
    const list = $("rollout").querySelector("ul"), texts = orders.map((order) => order.text).join("\n");
    list.hidden = orders.length === 0;
    if (list.dataset.texts !== texts) {
      list.dataset.texts = texts;
      list.replaceChildren(...orders.map((order) => make("li", order)));
    }
    rolloutTable.show(given.flatMap((fleet) => fleet.config.nodes.map((node) => ({
      ...node, fleet: fleet.name, is_own: node.name === fleet.node,
    }))));
  }

  const tierTable = new Table($("tiers").querySelector(".scroll"), {
    caption: "Second tiers", key: (tier) => tier.zone, sort: { column: "Zone", way: 1 }, none: "No second tier.",
    columns: [
      { title: "Zone", class: "text", text: (tier) => tier.zone, sort: (tier) => tier.zone },
      { title: "At", class: "text", text: (tier) => tier.place, sort: (tier) => tier.place },
      { title: "State", class: "text", fill: (cell, tier) => badge(cell, tier.is_left_alone ? "left alone" : "asked", tier.is_left_alone ? "bad" : "good"), sort: (tier) => tier.is_left_alone },
      { title: "Asked", text: (tier) => perSecond(tier.asked), sort: (tier) => tier.asked },
      { title: "Hit ratio", text: (tier) => percent(ratio(tier.reads.hit, tier.all)), sort: (tier) => ratio(tier.reads.hit, tier.all) ?? -1 },
      { title: "All hits", text: (tier) => short(tier.reads.hit), sort: (tier) => tier.reads.hit },
      { title: "Purged", text: (tier) => short(tier.reads.purged), sort: (tier) => tier.reads.purged },
      { title: "Faults", text: (tier) => short(tier.reads.fault + tier.writes.fault), sort: (tier) => tier.reads.fault + tier.writes.fault },
      { title: "Read", text: (tier) => bytesPerSecond(tier.rates[1]), sort: (tier) => tier.rates[1] },
      { title: "Written", text: (tier) => bytesPerSecond(tier.rates[2]), sort: (tier) => tier.rates[2] },
      { title: "Copies", text: (tier) => short(tier.writes.written), sort: (tier) => tier.writes.written },
      { title: "Objects", text: (tier) => short(tier.written_objects), sort: (tier) => tier.written_objects },
      { title: "Dropped", text: (tier) => short(tier.writes.dropped), sort: (tier) => tier.writes.dropped },
      { title: "Waiting", text: (tier) => `${short(tier.waiting)}, ${bytes(tier.queued_bytes)} of ${bytes(tier.queue_limit)}`, sort: (tier) => tier.queued_bytes },
    ],
  });
  function showTiers() {
    const tiers = last.tiers ?? [];
    $("tiers").hidden = tiers.length === 0;
    for (const tier of tiers) {
      tier.all = tier.reads.hit + tier.reads.miss + tier.reads.purged + tier.reads.fault;
      tier.rates = rateOf("tier " + tier.zone, last.time, [tier.all, tier.read_bytes, tier.written_bytes]);
      tier.asked = tier.rates[0];
    }
    tierTable.show(tiers);
  }

  const limitTable = new Table($("limits").querySelector(".scroll"), {
    caption: "Limits", key: (limit) => limit.kind + " " + limit.name, sort: { column: "Refused", way: -1 }, none: "No limit.",
    columns: [
      { title: "Zone", class: "text", text: (limit) => limit.name, sort: (limit) => limit.name },
      { title: "Of", class: "text", text: (limit) => limit.kind, sort: (limit) => limit.kind },
      { title: "Passed", text: (limit) => perSecond(limit.rates[0]), sort: (limit) => limit.rates[0] },
      { title: "Delayed", text: (limit) => perSecond(limit.rates[1]), sort: (limit) => limit.rates[1] },
      { title: "Refused", text: (limit) => perSecond(limit.rates[2]), sort: (limit) => limit.rates[2] },
      { title: "All delayed", text: (limit) => short(limit.counts[1]), sort: (limit) => limit.counts[1] },
      { title: "All refused", text: (limit) => short(limit.counts[2]), sort: (limit) => limit.counts[2] },
      { title: "Dry run", text: (limit) => short(limit.counts[3] + limit.counts[4]), sort: (limit) => limit.counts[3] + limit.counts[4] },
    ],
  });
  function showLimits() {
    const limits = last.limits ?? [];
    $("limits").hidden = limits.length === 0;
    for (const limit of limits) {
      limit.rates = rateOf("limit " + limitTable.key(limit), last.time, limit.counts);
    }
    limitTable.show(limits);
  }

  /// Whether a peer fails now, as far as its answers tell: nginx, and so the server, never gives up on
  /// the only one of a group. What was seen last stands until it is asked again.
  const failing = new Map();
  function stateOf(peer) {
    const key = peerTable.key(peer), [asked, , errors, , failed, good] = peer.rates;
    if (asked > 0 || failed > 0) {
      const bad = Math.max(failed, 0) + Math.max(errors, 0);
      failing.set(key, !(bad > 0) ? "" : good > 0 ? "some fail" : "all fail");
    }
    const seen = failing.get(key);
    return peer.state === "up" && seen ? seen : peer.state;
  }
  const PEER = { "all fail": ["all tries fail", "bad"], "some fail": ["some tries fail", "warn"], up: ["up", "good"], unavailable: ["failing", "bad"], draining: ["draining", "warn"], down: ["down", "warn"] };
  const peerTable = new Table($("upstreams").querySelector(".scroll"), {
    caption: "Upstream peers", key: (peer) => peer.group + " " + peer.name + " " + peer.number, none: "No upstream has been asked.",
    columns: [
      { title: "Peer", class: "text", text: (peer) => peer.name },
      { title: "Group", class: "text", text: (peer) => peer.group + (peer.is_backup ? " (backup)" : "") },
      { title: "State", class: "text", fill: (cell, peer) => badge(cell, ...PEER[peer.state] ?? [peer.state, "warn"]) },
      { title: "Requests", text: (peer) => perSecond(peer.rates[0]) },
      { title: "Fails", text: (peer) => perSecond(peer.rates[4]) },
      { title: "Now", text: (peer) => grouped.format(peer.active) },
      { title: "4xx", text: (peer) => perSecond(peer.rates[1]) },
      { title: "5xx", text: (peer) => perSecond(peer.rates[2]) },
      { title: "Received", text: (peer) => bytesPerSecond(peer.rates[3]) },
      { title: "To head", text: (peer) => peer.requests ? time(peer.header_us) : "–" },
      { title: "To end", text: (peer) => peer.requests ? time(peer.response_us) : "–" },
      { title: "All requests", text: (peer) => short(peer.requests) },
      { title: "All fails", text: (peer) => short(peer.fails) },
    ],
  });
  function showPeers() {
    $("upstreams").hidden = !last.upstreams;
    const peers = (last.upstreams ?? []).flatMap((group) => group.peers.map((peer, number) => ({ ...peer, group: group.name, number })));
    for (const peer of peers) {
      const good = peer.classes.slice(0, 4).reduce((sum, count) => sum + count, 0);
      const numbers = [peer.requests, peer.classes[3], peer.classes[4], peer.received, peer.fails, good];
      peer.rates = rateOf("peer " + peerTable.key(peer), last.time, numbers);
      peer.state = stateOf(peer);
    }
    peerTable.show(peers);
    return peers;
  }

  const fillTable = new Table($("fills").querySelector(".scroll"), {
    caption: "Fills running now", key: (fill) => fill.zone + " " + fill.key, none: "None: nothing is being fetched into a cache at this moment.",
    columns: [
      { title: "Key", class: "text wrap", text: (fill) => fill.key },
      { title: "Zone", class: "text", text: (fill) => fill.zone },
      { title: "Done", class: "text", fill: (cell, fill) => {
        meter(cell, fill.length ? fill.bytes / fill.length : 0, "done").hidden = !fill.length;
      } },
      { title: "Bytes", text: (fill) => fill.length ? `${bytes(fill.bytes)} of ${bytes(fill.length)}` : bytes(fill.bytes) },
      { title: "Clients", text: (fill) => grouped.format(fill.clients) },
      { title: "For", text: (fill) => span(fill.seconds) },
    ],
  });
  const missingTable = new Table($("missing").querySelector(".scroll"), {
    caption: "URLs that were missing most", key: ([url]) => url, none: "No URL was missing more than once.",
    columns: [
      { title: "URL", class: "text wrap", fill: (cell, [url]) => {
        if (!cell.firstChild) cell.append(make("code"));
        say(cell.firstChild, url);
        mark(cell, "title", url);
      } },
      { title: "Misses", text: ([, count]) => short(count) },
      { title: "Of all", fill: (cell, [, count]) => meter(cell, ratio(count, last.missing.all) ?? 0, "of all misses").classList.add("miss") },
    ],
  });
  const purgeTable = new Table($("purges").querySelector(".scroll"), {
    caption: "Last purges", key: (purge) => `${purge.zone} ${purge.number}`, none: "Nothing was purged since the start.",
    columns: [
      { title: "What", class: "text wrap", fill: (cell, purge) => {
        if (!cell.firstChild) cell.append(make("code"));
        say(cell.firstChild, purge.what || "everything");
        mark(cell, "title", purge.what);
      } },
      { title: "Kind", class: "text", text: (purge) => purge.kind + (purge.mode === "soft" ? ", soft" : "") },
      { title: "Zone", class: "text", text: (purge) => purge.zone },
      { title: "At", text: (purge) => clock(purge.time) },
    ],
  });
  function showLists() {
    $("fills").hidden = !last.fills;
    if (last.fills) fillTable.show(last.fills);
    $("missing").hidden = !last.missing;
    if (last.missing) missingTable.show(last.missing.urls);
    $("purges").hidden = !last.purges;
    if (last.purges) purgeTable.show(last.purges);
  }

  // ---- zones and disks -------------------------------------------------------------------------
  const cards = new Map();
  const DISK = { live: ["live", "good"], full: ["full", "warn"], failed: ["failed", "bad"] };
  function facts(box, list) {
    if (box.children.length !== list.length * 2) {
      box.replaceChildren(...list.flatMap(([name]) => [make("dt", { text: name }), make("dd")]));
    }
    list.forEach(([, value], index) => say(box.children[index * 2 + 1], value));
  }
  function zoneCard(zone) {
    let card = cards.get(zone.name);
    if (!card) {
      card = { used: make("span", { class: "soft" }), bar: make("div"), facts: make("dl", { class: "facts" }), disks: make("ul", { class: "disks" }), rows: new Map() };
      const top = make("div", { class: "top" }, make("h3", { text: zone.name }), card.used);
      card.node = make("div", { class: "card" }, top, card.bar, card.facts, card.disks);
      cards.set(zone.name, card);
      $("zones").querySelector(".cards").append(card.node);
    }
    return card;
  }
  function showZone(zone) {
    const card = zoneCard(zone), live = zone.live;
    say(card.used, "files: " + (zone.max_size ? `${bytes(zone.bytes)} of ${bytes(zone.max_size)}` : `${bytes(zone.bytes)}, no limit`));
    meter(card.bar, zone.max_size ? zone.bytes / zone.max_size : 0, `zone ${zone.name}, part of its limit`).hidden = !zone.max_size;
    const list = [["entries", short(zone.records)], ["live", `${bytes(zone.live_bytes)}, ${percent(ratio(zone.live_bytes, zone.bytes))} of the files`],
      ["index", bytes(zone.index_bytes)]];
    if (live) {
      const [evicted, inactive, written, refused] = rateOf("zone " + zone.name, last.time,
        [live.evicted, live.inactive_removed, live.written_bytes, live.not_stored]);
      list.push(["memory", live.memory_limit ? `${bytes(live.memory_bytes)} of ${bytes(live.memory_limit)}` : bytes(live.memory_bytes)],
        ["written", bytesPerSecond(written)], ["evicted", `${perSecond(evicted)}, all ${short(live.evicted)}`],
        ["inactive", `${perSecond(inactive)}, all ${short(live.inactive_removed)}`],
        ["not stored", `${perSecond(refused)}, all ${short(live.not_stored)}`], ["waiting", bytes(live.queued_bytes)],
        ["corrupt", short(live.corrupt)], ["lost", short(live.lost)]);
    }
    facts(card.facts, list);
    zone.disks.forEach((disk) => showDisk(card, zone, disk));
  }
  function showDisk(card, zone, disk) {
    let row = card.rows.get(disk.path);
    if (!row) {
      row = { state: make("span"), used: make("span", { class: "soft" }), bar: make("div"), why: make("p", { class: "soft" }) };
      const top = make("div", { class: "top" }, make("code", { text: disk.path }), row.state);
      card.disks.append(make("li", {}, top, row.bar, row.used, row.why));
      card.rows.set(disk.path, row);
    }
    badge(row.state, ...DISK[disk.state] ?? [disk.state, "warn"]);
    const limit = disk.max_size ? ` of ${bytes(disk.max_size)}` : "";
    const weight = zone.disks.some((other) => other.weight !== disk.weight) ? `, weight ${disk.weight}` : "";
    const failures = disk.failures ? `, given up ${disk.failures === 1 ? "once" : `${disk.failures} times`}` : "";
    say(row.used, `${bytes(disk.bytes)}${limit}, ${short(disk.records)} entries${weight}${failures}`);
    meter(row.bar, disk.max_size ? disk.bytes / disk.max_size : 0, `disk ${disk.path}, part of its limit`).hidden = !disk.max_size || zone.disks.length === 1;
    say(row.why, disk.why);
    row.why.hidden = !disk.why;
  }
  function showZones() {
    $("zones").hidden = !last.zones?.length;
    const names = new Set((last.zones ?? []).map((zone) => zone.name));
    for (const [name, card] of cards) if (!names.has(name)) { card.node.remove(); cards.delete(name); }
    (last.zones ?? []).forEach(showZone);
  }

  // ---- what needs attention --------------------------------------------------------------------
  function showAttention(peers) {
    const list = [];
    const now = recently();
    if (now) {
      const [good, errors, failed] = now.ends, all = good + errors + failed;
      const each = (count) => perSecond(count / now.seconds);
      if (errors + failed > 0) {
        const kind = (errors + failed) * 20 >= all ? "bad" : "warn";
        list.push([kind, `Origins fail: ${each(failed)} exchanges without an answer, ${each(errors)} answered 5xx, of ${each(all)}`]);
      }
      const answers = total(now.classes), broken = now.classes["5xx"];
      if (broken > 0) {
        list.push([broken * 20 >= answers ? "bad" : "warn", `Clients are answered 5xx: ${each(broken)}, ${percent(broken / answers)} of all answers`]);
      }
    }
    for (const zone of last.zones ?? []) {
      for (const disk of zone.disks) {
        if (disk.state === "failed") list.push(["bad", `Disk ${disk.path} of zone ${zone.name} has failed${disk.why ? ": " + disk.why : ""}`]);
        if (disk.state === "full") list.push(["warn", `The file system of ${disk.path} has no room for what zone ${zone.name} may have`]);
      }
      if (zone.live?.corrupt) list.push(["warn", `${short(zone.live.corrupt)} entries of zone ${zone.name} were corrupt and are gone`]);
      if (zone.live?.write_errors) list.push(["bad", `Zone ${zone.name}: the disk refused ${short(zone.live.write_errors)} writes`]);
    }
    for (const fleet of last.fleets ?? []) {
      const bad = (fleet.config?.nodes ?? []).filter((node) => node.is_live && STATE[node.state] === "bad");
      for (const node of bad.slice(0, 5)) {
        list.push(["warn", `Node ${node.name} of fleet ${fleet.name}: revision ${node.about} of the configuration is ${node.state}${node.reason ? ": " + node.reason : ""}`]);
      }
    }
    for (const tier of last.tiers ?? []) {
      if (tier.is_left_alone) list.push(["warn", `The second tier of zone ${tier.zone} has failed, and is left alone for a while`]);
    }
    for (const peer of peers) {
      if (peer.state === "all fail") list.push(["bad", `All tries with peer ${peer.name} of ${peer.group} fail`]);
      if (peer.state === "some fail") list.push(["warn", `Some tries with peer ${peer.name} of ${peer.group} fail`]);
      if (peer.state === "unavailable") list.push(["bad", `Peer ${peer.name} of ${peer.group} is failing`]);
    }
    if (last.lost_lines) list.push(["warn", `Logs lost ${short(last.lost_lines)} lines`]);
    const box = $("attention");
    box.hidden = list.length === 0;
    troubles = list.filter(([kind]) => kind === "bad").length;
    mark($("state"), "data-trouble", String(troubles > 0));
    const texts = list.map(([, text]) => text).join("\n");
    if (box.dataset.texts === texts) return;
    box.dataset.texts = texts;
    box.replaceChildren(...list.map(([kind, text]) => make("li", { class: kind, text })));
  }

  // ---- drawing ---------------------------------------------------------------------------------
  function showAll() {
    if (!last) return;
    charts.times.node.hidden = !last.times;
    showTiles();
    for (const chart of Object.values(charts)) if (!chart.node.hidden) chart.show();
    showZones();
    showSites();
    showStatusZones();
    showFleets();
    showRollout();
    showTiers();
    showLimits();
    showAttention(showPeers());
    showLists();
    say($("about"), `version ${last.version}, up ${span((last.time - last.started) / 1000)}`);
    const recentRatio = hitRatio(recently()?.requests ?? {});
    document.title = (recentRatio === null ? "" : `${percent(recentRatio)} · `) + `Millpond ${location.host}`;
    mark(document.body, "data-events", String(events));
  }
  function maybeShow() {
    if (!isPaused && !document.hidden) showAll();
  }

  // ---- events ----------------------------------------------------------------------------------
  let troubles = 0;
  let events = 0, source = null, heard = 0, lostAt = 0, again = null;
  const SILENT = 4000;         // milliseconds without an event after which something is said

  function setState(state, text) {
    mark($("state"), "data-state", state);
    say($("state-text"), text);
    document.querySelector("main").classList.toggle("is-old", state === "lost" && last !== null);
  }
  function connect() {
    clearTimeout(again);
    source?.close();
    source = new EventSource(location.pathname + "?events");
    source.onmessage = (message) => {
      events++;
      heard = performance.now();
      lostAt = 0;
      take(JSON.parse(message.data));
      maybeShow();
      const trouble = troubles === 0 ? "" : troubles === 1 ? ", 1 problem" : `, ${troubles} problems`;
      setState("live", (isPaused ? "Paused" : "Live") + trouble);
    };
    source.addEventListener("history", (message) => begin(JSON.parse(message.data)));
    source.onerror = () => {
      if (!lostAt) lostAt = performance.now();
      look();
      // After an answer that is no stream the browser does not ask again by itself.
      if (source.readyState === EventSource.CLOSED) again = setTimeout(connect, 3000);
    };
  }
  /// Says so when nothing comes.
  function look() {
    const now = performance.now();
    if (!lostAt && heard && now - heard > SILENT) lostAt = heard;
    if (lostAt) setState("lost", last ? `No connection for ${span((now - lostAt) / 1000)}, trying again` : "No connection, trying again");
  }
  setInterval(look, 1000);

  // ---- controls --------------------------------------------------------------------------------
  const THEMES = ["auto", "light", "dark"];
  function setTheme(theme) {
    document.documentElement.dataset.theme = theme;
    say($("theme"), theme[0].toUpperCase() + theme.slice(1));
    mark($("theme"), "aria-label", "Colours: " + theme);
    store.write("theme", theme);
  }
  setTheme(THEMES.includes(store.read("theme")) ? store.read("theme") : "auto");
  $("theme").addEventListener("click", () => {
    setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);
  });
  function setSpan(value) {
    seconds = value;
    store.write("span", String(value));
    for (const button of $("span").children) mark(button, "aria-pressed", String(Number(button.dataset.span) === seconds));
    for (const chart of Object.values(charts)) chart.show();
  }
  $("span").addEventListener("click", (event) => {
    if (event.target.dataset.span) setSpan(Number(event.target.dataset.span));
  });
  function pause() {
    isPaused = !isPaused;
    mark($("pause"), "aria-pressed", String(isPaused));
    say($("pause"), isPaused ? "Go on" : "Pause");
    maybeShow();
  }
  $("pause").addEventListener("click", pause);
  $("filter").addEventListener("input", () => { if (siteTable) siteTable.sorted = 0; if (last) showSites(); });
  document.addEventListener("keydown", (event) => {
    if (event.target.matches("input") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") { event.preventDefault(); $("filter").focus(); }
    if (event.key === "p") pause();
  });
  document.addEventListener("visibilitychange", maybeShow);
  let sized = 0;
  window.addEventListener("resize", () => { cancelAnimationFrame(sized); sized = requestAnimationFrame(maybeShow); });

  say($("host"), location.host);
  setSpan(seconds);
  connect();
})();
