// The visible range of a chart, and its control by wheel, drag, pinch, keys and buttons.

/** The visible range [lo, hi] of an axis from `from` to `to`. */
class AxisRange {
  constructor(from, to, least) {
    this.from = from;
    this.to = to > from ? to : from + 1;
    this.least = Math.min(least, this.to - this.from);
    this.reset();
  }

  get whole() { return this.lo <= this.from && this.hi >= this.to; }

  reset() { this.lo = this.from; this.hi = this.to; }

  set(lo, hi) {
    const length = Math.min(Math.max(hi - lo, this.least), this.to - this.from);
    const middle = (lo + hi) / 2;
    this.lo = Math.min(Math.max(middle - length / 2, this.from), this.to - length);
    this.hi = this.lo + length;
  }

  /** Scale the visible range by `factor`; the point at the fraction `share` of the range stays in place. */
  zoom(factor, share = 0.5) {
    const length = this.hi - this.lo;
    const next = Math.min(Math.max(length * factor, this.least), this.to - this.from);
    const lo = this.lo + share * (length - next);
    this.set(lo, lo + next);
  }

  move(share) {
    const by = share * (this.hi - this.lo);
    this.set(this.lo + by, this.hi + by);
  }
}

/**
 * The view of a canvas. `x` is time; `y` is rows, or null without vertical zoom.
 * `chart` has box() (the plot in CSS pixels), draw(), point(x, y, chosen), leave() and step(by).
 */
class View {
  constructor(canvas, x, y, chart) {
    Object.assign(this, { canvas, x, y, chart, band: null, pointers: new Map(), scheduled: false });
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.motion(event));
    canvas.addEventListener("pointerup", (event) => this.up(event));
    canvas.addEventListener("pointercancel", (event) => this.up(event));
    canvas.addEventListener("pointerleave", () => { if (!this.pointers.size) chart.leave(); });
    canvas.addEventListener("dblclick", () => this.act("reset"));
    for (const button of canvas.closest("figure").querySelectorAll("button[data-do]")) {
      button.addEventListener("click", () => this.act(button.dataset.do));
    }
    new ResizeObserver(() => this.changed()).observe(canvas);
  }

  /** Schedule one redraw before the next frame. */
  changed() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => { this.scheduled = false; this.chart.draw(); });
  }

  act(what) {
    if (what === "in") this.x.zoom(0.5);
    if (what === "out") this.x.zoom(2);
    if (what === "left") this.x.move(-0.25);
    if (what === "right") this.x.move(0.25);
    if (what === "reset") { this.x.reset(); this.y?.reset(); }
    if (this.y) {
      if (what === "taller") this.y.zoom(0.5);
      if (what === "flatter") this.y.zoom(2);
      if (what === "up") this.y.move(0.25);
      if (what === "down") this.y.move(-0.25);
    }
    this.changed();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const acts = { "+": "in", "=": "in", "-": "out", "_": "out", ArrowLeft: "left", ArrowRight: "right",
      0: "reset", Home: "reset", "]": "taller", "[": "flatter" };
    if (this.y && !this.y.whole) Object.assign(acts, { ArrowUp: "up", ArrowDown: "down" });
    const steps = { n: 1, p: -1, N: 1, P: -1, ".": 1, ",": -1 };
    if (event.key in acts) this.act(acts[event.key]);
    else if (event.key in steps) this.chart.step(steps[event.key]);
    else return;
    event.preventDefault();
  }

  place(event) {
    const bounds = this.canvas.getBoundingClientRect();
    return [event.clientX - bounds.left, event.clientY - bounds.top];
  }

  wheel(event) {
    const box = this.chart.box();
    const [px, py] = this.place(event);
    const out = event.deltaY > 0;
    const along = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    const axis = event.shiftKey && this.y && !along ? this.y : this.x;
    if (!along && out && axis.whole) return; // fully zoomed out: let the page scroll
    event.preventDefault();
    if (along) this.x.move(event.deltaX / box.width);
    else {
      const amount = event.deltaMode === 1 ? event.deltaY * 30 : event.deltaY;
      const share = axis === this.x ? (px - box.left) / box.width : 1 - (py - box.top) / box.height;
      axis.zoom(Math.exp(Math.max(Math.min(amount, 240), -240) * 0.003), Math.min(Math.max(share, 0), 1));
    }
    this.changed();
  }

  down(event) {
    if (event.button > 0) return;
    const [px, py] = this.place(event);
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, { px, py, first: [px, py] });
    if (this.pointers.size === 2) { this.band = null; this.pinched = true; } else this.pinched = false;
  }

  motion(event) {
    const [px, py] = this.place(event);
    const pointer = this.pointers.get(event.pointerId);
    if (!pointer) { this.chart.point(px, py, false); return; }
    const box = this.chart.box();
    if (this.pointers.size === 2) {
      const other = [...this.pointers].find(([id]) => id !== event.pointerId)[1];
      const was = Math.abs(pointer.px - other.px), is = Math.abs(px - other.px);
      const middle = (pointer.px + other.px) / 2;
      this.x.zoom(Math.max(was, 8) / Math.max(is, 8), (middle - box.left) / box.width);
      this.x.move(-((px - pointer.px) / 2) / box.width);
    } else if (event.pointerType === "touch" || event.shiftKey) {
      if (!this.pinched) this.x.move(-(px - pointer.px) / box.width);
      if (this.y && !this.y.whole) this.y.move((py - pointer.py) / box.height);
    } else if (Math.abs(px - pointer.first[0]) > 3) {
      const clip = (at) => Math.min(Math.max(at, box.left), box.left + box.width);
      this.band = [clip(pointer.first[0]), clip(px)].sort((a, b) => a - b);
    }
    Object.assign(pointer, { px, py });
    this.changed();
  }

  up(event) {
    const pointer = this.pointers.get(event.pointerId);
    this.pointers.delete(event.pointerId);
    if (!pointer || event.type === "pointercancel") { this.band = null; this.changed(); return; }
    const box = this.chart.box();
    if (this.band && this.band[1] - this.band[0] > 4) {
      const length = this.x.hi - this.x.lo, lo = this.x.lo;
      const [from, to] = this.band.map((at) => lo + (at - box.left) / box.width * length);
      this.x.set(from, to);
    } else if (!this.pinched && Math.hypot(pointer.px - pointer.first[0], pointer.py - pointer.first[1]) < 5) {
      this.chart.point(pointer.px, pointer.py, true);
    }
    this.band = null;
    this.changed();
  }

  /** Draw the time span that is being selected with the mouse. */
  drawBand(pen, box, colours) {
    if (!this.band) return;
    pen.globalAlpha = 0.18;
    pen.fillStyle = colours.mark;
    pen.fillRect(this.band[0], box.top, this.band[1] - this.band[0], box.height);
    pen.globalAlpha = 1;
  }
}
