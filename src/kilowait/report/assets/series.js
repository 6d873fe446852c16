// Time-series charts (backlog, utilization), one line for each policy, in panels that share one time axis.

const DASHES = [[], [7, 3], [2, 2], [8, 2, 2, 2], [], [4, 2], [1, 3]];

const POINT = 4; // minimum distance of points in pixels; closer bins are merged

class SeriesChart {
  constructor(figure, setup, blocks) {
    this.canvas = figure.querySelector("canvas");
    this.readout = figure.querySelector("output");
    this.setup = setup;
    this.clock = new Clock(setup.zero, setup.unix);
    this.lines = setup.series.map((line, i) => ({ ...line, columns: blocks[i], shown: true, number: i }));
    const to = Math.max(...this.lines.map((line) => line.to));
    const from = Math.min(...this.lines.map((line) => line.from));
    const least = Math.max(8 * (to - from) / Math.max(...this.lines.map((line) => line.bins)), 60);
    this.at = null;
    this.view = new View(this.canvas, new AxisRange(from, to, least), null, this);
    figure.querySelectorAll("input[type=checkbox]").forEach((tick, i) => {
      tick.addEventListener("change", () => { this.lines[i].shown = tick.checked; this.view.changed(); });
    });
    this.canvas.chart = this;
    this.draw();
  }

  box() {
    return { left: 58, top: 22, width: this.canvas.clientWidth - 58 - 12, height: this.canvas.clientHeight - 22 - 34 };
  }

  draw() {
    const { pen, width } = fitted(this.canvas);
    if (width < 80) return;
    const colours = Object.fromEntries(["ink", "faint", "grid", "mark"].map((name) => [name, colour(name)]));
    const box = this.box();
    timeAxis(pen, this.clock, this.view, box, colours);
    const gap = 30, panels = this.setup.panels;
    const height = (box.height - gap * (panels.length - 1)) / panels.length;
    panels.forEach((panel, i) => this.panel(pen, panel, { ...box, top: box.top + i * (height + gap), height }, colours));
    this.view.drawBand(pen, box, colours);
    if (this.at !== null) {
      const x = box.left + (this.at - this.view.x.lo) / (this.view.x.hi - this.view.x.lo) * box.width;
      pen.strokeStyle = colours.ink;
      pen.setLineDash([3, 3]);
      pen.beginPath();
      pen.moveTo(x, box.top);
      pen.lineTo(x, box.top + box.height);
      pen.stroke();
      pen.setLineDash([]);
    }
  }

  panel(pen, panel, box, colours) {
    const shown = this.lines.filter((line) => line.shown);
    const { lo, hi } = this.view.x;
    let top = panel.top ?? 0;
    const drawn = shown.map((line) => {
      const found = this.visiblePoints(line, panel.key, box.width);
      for (const [, mean, , most] of found) top = Math.max(top, shown.length < 3 ? most : mean);
      return found;
    });
    top = top || 1;
    const y = (value) => box.top + box.height * (1 - Math.min(value / (top * 1.04), 1));
    pen.textAlign = "left";
    pen.textBaseline = "bottom";
    pen.fillStyle = colours.ink;
    pen.font = "600 12px system-ui, sans-serif";
    pen.fillText(panel.title, box.left, box.top - 5);
    pen.font = "12px system-ui, sans-serif";
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const tick of roundTicks(0, top, box.height / 34)) {
      pen.strokeStyle = colours.grid;
      pen.beginPath();
      pen.moveTo(box.left, Math.round(y(tick)) + 0.5);
      pen.lineTo(box.left + box.width, Math.round(y(tick)) + 0.5);
      pen.stroke();
      pen.fillStyle = colours.faint;
      pen.fillText(short(tick) + (panel.unit ?? ""), box.left - 7, y(tick));
    }
    const x = (t) => box.left + (t - lo) / (hi - lo) * box.width;
    pen.save();
    pen.beginPath();
    pen.rect(box.left, box.top - 2, box.width, box.height + 4);
    pen.clip();
    shown.forEach((line, i) => {
      const tint = colour(`line${line.line}`);
      const points = drawn[i];
      if (points.merged && shown.length < 3) { // merged bins: range as shaded area, mean as line
        pen.globalAlpha = 0.16;
        pen.fillStyle = tint;
        for (const [at, , least, most, end] of points) pen.fillRect(x(at), y(most), x(end) - x(at), Math.max(y(least) - y(most), 1));
        pen.globalAlpha = 1;
      }
      pen.strokeStyle = tint;
      pen.lineWidth = 1.8;
      pen.lineJoin = "round";
      pen.setLineDash(DASHES[line.line % DASHES.length]);
      pen.beginPath();
      points.forEach(([at, mean, , , end], j) => {
        const from = points.merged ? (at + end) / 2 : at;
        if (j) pen.lineTo(x(from), y(mean)); else pen.moveTo(x(from), y(mean));
        if (!points.merged) pen.lineTo(x(end), y(mean));
      });
      pen.stroke();
      pen.setLineDash([]);
    });
    pen.restore();
  }

  /** The visible part of a line: [time, mean, minimum, maximum, end] for each bin, or for each group of merged bins. */
  visiblePoints(line, key, pixels) {
    const values = line.columns[key];
    const { lo, hi } = this.view.x;
    const bin = (line.to - line.from) / line.bins;
    const first = Math.max(Math.floor((lo - line.from) / bin), 0);
    const last = Math.min(Math.ceil((hi - line.from) / bin), line.bins);
    const found = [];
    const each = Math.floor((hi - lo) / bin / pixels * POINT);
    found.merged = each > 1;
    const width = Math.max(each, 1);
    for (let i = first - first % width; i < last; i += width) {
      let sum = 0, least = Infinity, most = -Infinity;
      const stop = Math.min(i + width, line.bins);
      for (let j = i; j < stop; j++) {
        sum += values[j];
        if (values[j] < least) least = values[j];
        if (values[j] > most) most = values[j];
      }
      found.push([line.from + i * bin, sum / (stop - i), least, most, line.from + stop * bin]);
    }
    return found;
  }

  point(px) {
    const box = this.box();
    const share = (px - box.left) / box.width;
    if (share < 0 || share > 1) { this.leave(); return; }
    this.select(this.view.x.lo + share * (this.view.x.hi - this.view.x.lo));
  }

  leave() { this.at = null; this.view.changed(); }

  /** Move the cursor with the keyboard, a fortieth of the view at a time. */
  step(by) {
    const { lo, hi } = this.view.x;
    const from = this.at === null || this.at < lo || this.at > hi ? (lo + hi) / 2 : this.at;
    this.select(Math.min(Math.max(from + by * (hi - lo) / 40, lo), hi));
  }

  select(at) {
    this.at = at;
    const parts = [["at", this.clock.at(at)]];
    for (const line of this.lines.filter((each) => each.shown)) {
      const bin = Math.floor((at - line.from) / (line.to - line.from) * line.bins);
      if (bin < 0 || bin >= line.bins) { parts.push([line.label, "no jobs"]); continue; }
      const words = this.setup.readout.replace(/\{(\w+)\}/g, (_, key) => short(line.columns[key][bin]));
      parts.push([line.label, words]);
    }
    showReadout(this.readout, parts);
    this.view.changed();
  }
}

/** Show names and values in the read-out. */
function showReadout(output, parts) {
  output.replaceChildren(...parts.map(([name, value]) => {
    const item = document.createElement("span");
    const label = document.createElement("b");
    label.textContent = name;
    item.append(label, ` ${value}`);
    return item;
  }));
}
