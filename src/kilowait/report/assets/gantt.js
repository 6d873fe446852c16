// Gantt chart. Up to FEW rectangles are drawn individually; with more, each pixel mixes the colours that cover it, so that
// utilization is visible at every zoom level.

const BLOCK = 512; // segments per block of the index of latest ends
const FEW = 3000; // maximum number of rectangles drawn individually
const VIRIDIS = ["#fde725", "#a0da39", "#4ac16d", "#1fa187", "#277f8e", "#3f6db5", "#6a51b8", "#8e2f8f"];
const WAITS = ["#9ecae1", "#6baed6", "#f1c453", "#e69f00", "#d55e00", "#8c2d04"];
const WAIT_EDGES = [60, 600, 3600, 21600, 86400];
const WAIT_WORDS = ["under 1 min", "1–10 min", "10–60 min", "1–6 h", "6–24 h", "over a day"];
const USERS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442"];
const PALE = 0.3; // opacity of warm-up jobs
const OTHERS = "#8b949e";

class Gantt {
  constructor(figure, setup, jobs) {
    this.canvas = figure.querySelector("canvas");
    this.readout = figure.querySelector("output");
    this.legend = figure.querySelector(".legend");
    this.setup = setup;
    this.jobs = jobs;
    this.clock = new Clock(setup.zero, setup.unix);
    this.runs = new Map();
    this.selected = -1; // a segment
    this.opacity = Float32Array.from(jobs.submit, (_, job) => this.baseOpacity(job));
    this.canvas.chart = this;
    this.view = new View(this.canvas, new AxisRange(0, setup.length, 30), new AxisRange(0, setup.rows, Math.min(8, setup.rows)), this);
    const [schedule, by] = figure.querySelectorAll("select");
    schedule.addEventListener("change", () => this.show(+schedule.value));
    by.addEventListener("change", () => { this.by = by.value; this.assignColours(); this.draw(); });
    this.by = by.value;
    this.ready = this.show(+schedule.value);
  }

  /** The opacity of a job: warm-up jobs are pale. */
  baseOpacity(job) { return job < this.setup.warmup ? PALE : 1; }

  /** The decoded schedule of a policy. */
  async runOf(number) {
    if (!this.runs.has(number)) this.runs.set(number, unpacked(this.setup.runs[number].block).then((packed) => this.decode(packed)));
    return this.runs.get(number);
  }

  /** Show the schedule of another policy. */
  async show(number) {
    this.run = await this.runOf(number);
    this.visible = new Int32Array(this.run.job.length);
    this.number = number;
    this.selected = -1;
    this.assignColours();
    this.draw();
  }

  /** Compute starts, ends, waits (seconds) and rectangles from the packed columns, and an index of latest ends. */
  decode(packed) {
    const { jobs } = this, tick = this.setup.tick, n = packed.job.length;
    const run = { job: packed.job, bsld: packed.bsld, start: new Float64Array(n), end: new Float64Array(n),
      wait: new Float64Array(n), rect: new Int32Array(n + 1), row: packed.row, count: new Int32Array(packed.row.length),
      latest: new Float64Array(Math.ceil(n / BLOCK)) };
    for (let s = 0, r = 0; s < n; s++) {
      const job = packed.job[s];
      run.start[s] = packed.start[s] * tick;
      run.end[s] = (packed.start[s] + jobs.runtime[job] + packed.over[s]) * tick;
      run.wait[s] = (packed.start[s] - jobs.submit[job] - packed.late[s]) * tick;
      for (const stop = r + 1 + packed.more[s]; r < stop; r++) run.count[r] = jobs.nodes[job] - packed.less[r];
      run.rect[s + 1] = r;
      const block = Math.floor(s / BLOCK);
      if (run.end[s] > run.latest[block]) run.latest[block] = run.end[s];
    }
    return run;
  }

  /** The segments between two times, ascending; the next call overwrites the array. */
  visibleSegments(lo, hi) {
    const { start, end, latest } = this.run;
    let low = 0, high = start.length;
    while (low < high) { const mid = (low + high) >> 1; if (start[mid] <= hi) low = mid + 1; else high = mid; }
    const stop = low, found = this.visible;
    let count = 0;
    for (let b = 0; b * BLOCK < stop; b++) {
      if (latest[b] < lo) continue;
      const last = Math.min((b + 1) * BLOCK, stop);
      for (let s = b * BLOCK; s < last; s++) if (end[s] >= lo) found[count++] = s;
    }
    return found.subarray(0, count);
  }

  /** Assign every segment a colour of the palette, and update the legend. */
  assignColours() {
    const { run, jobs, setup } = this, n = run.job.length;
    let labels, palette, colourOf;
    if (this.by === "user") {
      const rank = new Map(setup.topUsers.map((user, i) => [user, i]));
      const many = Math.min(setup.topUsers.length, USERS.length);
      palette = [...USERS.slice(0, many), OTHERS];
      labels = [...setup.topUsers.slice(0, many).map((user) => this.user(user)), "others"];
      colourOf = (s) => Math.min(rank.get(jobs.user[run.job[s]]) ?? many, many);
    } else if (this.by === "wait") {
      palette = WAITS;
      labels = WAIT_WORDS;
      colourOf = (s) => { let c = 0; while (c < WAIT_EDGES.length && run.wait[s] >= WAIT_EDGES[c]) c++; return c; };
    } else {
      const classes = setup.sizes.length;
      palette = setup.sizes.map((_, i) => VIRIDIS[classes < 2 ? 4 : Math.round(i / (classes - 1) * (VIRIDIS.length - 1))]);
      labels = setup.sizes.map(([, label]) => (label === "1" ? "1 node" : `${label} nodes`));
      colourOf = (s) => { let c = 0; const nodes = jobs.nodes[run.job[s]]; while (c < classes - 1 && nodes > setup.sizes[c][0]) c++; return c; };
    }
    this.palette = palette.map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
    this.tint = new Uint8Array(n);
    for (let s = 0; s < n; s++) this.tint[s] = colourOf(s);
    this.legend.replaceChildren(...labels.map((label, i) => {
      const item = document.createElement("span");
      const patch = document.createElement("i");
      patch.style.background = palette[i];
      item.append(patch, label);
      return item;
    }));
  }

  user(code) { return code < 0 ? "unknown" : this.setup.users[code] ?? String(code); }

  box() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    return { left: 58, top: 8, width: width - 58 - 12, height: height - 8 - 34 };
  }

  draw() {
    if (!this.run) return;
    const began = performance.now();
    const { pen, width, scale } = fitted(this.canvas);
    if (width < 80) return;
    const colours = Object.fromEntries(["ink", "faint", "grid", "mark", "paper", "well"].map((name) => [name, colour(name)]));
    const box = this.box(), { x } = this.view;
    pen.fillStyle = colours.well;
    pen.fillRect(box.left, box.top, box.width, box.height);
    timeAxis(pen, this.clock, this.view, box, colours);
    this.rowAxis(pen, box, colours);
    const visible = this.visibleSegments(x.lo, x.hi), { rect } = this.run;
    let rectangles = 0;
    for (let i = 0; i < visible.length; i++) rectangles += rect[visible[i] + 1] - rect[visible[i]];
    pen.save();
    pen.beginPath();
    pen.rect(box.left, box.top, box.width, box.height);
    pen.clip();
    if (rectangles > FEW) this.raster(pen, box, visible, scale);
    else this.vector(pen, box, visible, colours);
    if (this.selected >= 0) this.outline(pen, box, colours);
    this.view.drawBand(pen, box, colours);
    pen.restore();
    this.drawn = { rectangles, milliseconds: performance.now() - began };
  }

  rowAxis(pen, box, colours) {
    const { y } = this.view;
    const at = (row) => box.top + box.height * (1 - (row - y.lo) / (y.hi - y.lo));
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    pen.fillStyle = colours.faint;
    for (const tick of roundTicks(y.lo, y.hi, box.height / 60)) pen.fillText(grouped(tick), box.left - 7, at(tick));
    let first = 0;
    for (const [name, rows] of this.setup.groups) {
      if (first > y.lo && first < y.hi) {
        pen.strokeStyle = colours.ink;
        pen.beginPath();
        pen.moveTo(box.left - 50, at(first));
        pen.lineTo(box.left + box.width, at(first));
        pen.stroke();
      }
      if (this.setup.groups.length > 1 && first < y.hi && first + rows > y.lo) {
        const low = Math.max(first, y.lo), high = Math.min(first + rows, y.hi), middle = at((low + high) / 2);
        const fits = pen.measureText(name).width < at(low) - at(high);
        pen.save();
        pen.translate(10, middle);
        pen.rotate(-Math.PI / 2);
        pen.textAlign = "center";
        pen.fillStyle = colours.ink;
        if (fits) pen.fillText(name, 0, 0); // a longer name would be cut off, or overlap the next
        pen.restore();
      }
      first += rows;
    }
  }

  vector(pen, box, visible, colours) {
    const { x, y } = this.view, { start, end, rect, row, count, job } = this.run;
    const sx = box.width / (x.hi - x.lo), sy = box.height / (y.hi - y.lo);
    const gap = sy > 6 ? 1 : 0;
    for (const s of visible) {
      const [r, g, b] = this.palette[this.tint[s]];
      const left = box.left + (start[s] - x.lo) * sx;
      const wide = Math.max((end[s] - start[s]) * sx, 1);
      pen.globalAlpha = this.opacity[job[s]];
      for (let k = rect[s]; k < rect[s + 1]; k++) {
        const high = Math.max(count[k] * sy, 1);
        const top = box.top + box.height - (row[k] - y.lo) * sy - high;
        if (top > box.top + box.height || top + high < box.top) continue;
        pen.fillStyle = `rgb(${r} ${g} ${b})`;
        pen.fillRect(left, top + gap / 2, Math.max(wide - (wide > 4 ? 1 : 0), 0.7), Math.max(high - gap, 0.7));
        if (high > 4 && wide > 4) {
          pen.strokeStyle = colours.well;
          pen.lineWidth = 0.7;
          pen.strokeRect(left, top, wide, high);
        }
        const shownLeft = Math.max(left, box.left), shownWide = Math.min(left + wide, box.left + box.width) - shownLeft;
        if (high > 13 && shownWide > 46 && k === rect[s]) {
          pen.fillStyle = r * 0.3 + g * 0.59 + b * 0.11 > 125 ? "#111" : "#fff";
          pen.textAlign = "left";
          pen.textBaseline = "middle";
          const middle = Math.min(Math.max(top + high / 2, box.top + 8), box.top + box.height - 8);
          const id = String(this.jobs.id[job[s]]);
          if (pen.measureText(id).width < shownWide - 8) pen.fillText(id, shownLeft + 4, middle);
        }
      }
    }
    pen.globalAlpha = 1;
  }

  /** Accumulate colours by the covered area of each pixel, column by column, and draw the result as an image. */
  raster(pen, box, visible, scale) {
    const { x, y } = this.view, { start, end, rect, row, count, job } = this.run;
    const fine = Math.min(scale, Math.sqrt(1.5e6 / (box.width * box.height)));
    const W = Math.max(Math.round(box.width * fine), 1), H = Math.max(Math.round(box.height * fine), 1);
    if (this.sum?.length !== W * H * 4) {
      this.sum = new Float32Array(W * H * 4);
      this.image = new ImageData(W, H);
      this.sheet = new OffscreenCanvas(W, H);
    } else this.sum.fill(0);
    const { sum } = this, sx = W / (x.hi - x.lo), sy = H / (y.hi - y.lo);
    const { tint, palette, opacity } = this;
    for (let v = 0; v < visible.length; v++) {
      const s = visible[v];
      const left = Math.max((start[s] - x.lo) * sx, 0), right = Math.min((end[s] - x.lo) * sx, W);
      if (right <= left) continue;
      const first = Math.floor(left), last = Math.min(Math.ceil(right), W), alpha = opacity[job[s]];
      const mixed = palette[tint[s]], red = mixed[0], green = mixed[1], blue = mixed[2];
      for (let k = rect[s]; k < rect[s + 1]; k++) {
        const top = Math.max(H - (row[k] + count[k] - y.lo) * sy, 0), bottom = Math.min(H - (row[k] - y.lo) * sy, H);
        if (bottom <= top) continue;
        const high = Math.floor(top), low = Math.min(Math.ceil(bottom), H);
        for (let i = first; i < last; i++) {
          const wide = alpha * (Math.min(right, i + 1) - Math.max(left, i));
          for (let j = high, at = (i * H + high) * 4; j < low; j++, at += 4) {
            const part = wide * (Math.min(bottom, j + 1) - Math.max(top, j));
            sum[at] += part * red;
            sum[at + 1] += part * green;
            sum[at + 2] += part * blue;
            sum[at + 3] += part;
          }
        }
      }
    }
    const pixels = new Uint32Array(this.image.data.buffer);
    for (let j = 0; j < H; j++) {
      for (let i = 0, at = j * 4, to = j * W; i < W; i++, at += H * 4, to++) {
        const part = sum[at + 3];
        if (part < 0.004) { pixels[to] = 0; continue; }
        const red = sum[at] / part, green = sum[at + 1] / part, blue = sum[at + 2] / part;
        pixels[to] = (Math.min(part, 1) * 255 << 24 | blue << 16 | green << 8 | red) >>> 0;
      }
    }
    this.sheet.getContext("2d").putImageData(this.image, 0, 0);
    pen.imageSmoothingEnabled = fine < scale;
    pen.drawImage(this.sheet, box.left, box.top, box.width, box.height);
  }

  /** Draw a frame around the selected job and a dashed line for its wait. */
  outline(pen, box, colours) {
    const { x, y } = this.view, { start, end, rect, row, count, wait } = this.run, s = this.selected;
    const sx = box.width / (x.hi - x.lo), sy = box.height / (y.hi - y.lo);
    const left = box.left + (start[s] - x.lo) * sx, wide = Math.max((end[s] - start[s]) * sx, 2);
    for (let k = rect[s]; k < rect[s + 1]; k++) {
      const high = Math.max(count[k] * sy, 2), top = box.top + box.height - (row[k] - y.lo) * sy - high;
      for (const [width, ink] of [[4, colours.paper], [2, colours.ink]]) { // visible on any colour
        pen.lineWidth = width;
        pen.strokeStyle = ink;
        pen.strokeRect(left - 1, top - 1, wide + 2, high + 2);
      }
      if (k > rect[s]) continue;
      pen.setLineDash([2, 3]);
      pen.beginPath();
      pen.moveTo(left - wait[s] * sx, top + high / 2);
      pen.lineTo(left, top + high / 2);
      pen.stroke();
      pen.setLineDash([]);
    }
  }

  /** The segment at a canvas position, with a tolerance of a few pixels, or -1. */
  segmentAt(px, py) {
    const box = this.box(), { x, y } = this.view, { start, end, rect, row, count } = this.run;
    if (px < box.left || px > box.left + box.width || py < box.top || py > box.top + box.height) return -1;
    const per = (x.hi - x.lo) / box.width, rowsPer = (y.hi - y.lo) / box.height;
    const t = x.lo + (px - box.left) * per, at = y.hi - (py - box.top) * rowsPer;
    let best = -1, least = 4;
    for (const s of this.visibleSegments(t - 4 * per, t + 4 * per)) {
      const beside = Math.max(start[s] - t, t - end[s], 0) / per;
      for (let k = rect[s]; k < rect[s + 1]; k++) {
        const off = Math.max(row[k] - at, at - row[k] - count[k], 0) / rowsPer;
        if (beside + off < least) { least = beside + off; best = s; }
      }
    }
    return best;
  }

  point(px, py, chosen) {
    if (!this.run) return;
    const s = this.segmentAt(px, py);
    if (s < 0 && !chosen) return; // keep the last job selected
    this.select(s);
  }

  leave() { /* the last job stays selected */ }

  /** Select the next or previous job by start, within the visible range. */
  step(by) {
    const { start } = this.run, { x } = this.view;
    let s = this.selected;
    if (s < 0 || start[s] < x.lo || start[s] > x.hi) {
      s = start.findIndex((t) => t >= x.lo) - (by > 0 ? 1 : 0);
    }
    s = Math.min(Math.max(s + by, 0), start.length - 1);
    if (start[s] < x.lo || start[s] > x.hi) x.set(start[s] - (x.hi - x.lo) / 2, start[s] + (x.hi - x.lo) / 2);
    this.select(s);
  }

  select(s) {
    if (s === this.selected) return;
    this.selected = s;
    if (s < 0) this.readout.textContent = "No job here: the nodes are idle. Point at a coloured rectangle.";
    else {
      const { run, jobs, setup, clock } = this, job = run.job[s];
      showReadout(this.readout, [
        ["job", String(jobs.id[job]) + (job < setup.warmup ? " (warm-up, not counted)" : "")],
        ["user", this.user(jobs.user[job])],
        ["nodes", grouped(jobs.nodes[job])],
        ["submitted", clock.at(jobs.submit[job] * setup.tick)],
        ["waited", span(run.wait[s])],
        ["started", clock.at(run.start[s])],
        ["ran", span(run.end[s] - run.start[s])],
        ["bounded slowdown", short(run.bsld[s])],
      ]);
    }
    this.view.changed();
  }
}
