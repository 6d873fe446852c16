// Chart of power over time with a signal in the background. Included only in pages with energy data; starts its own charts.

const RIGHT = 62; // pixels for the signal's own axis
const TITLE = 190; // pixels for the title at the left

class PowerChart extends SeriesChart {
  constructor(figure, setup, blocks, signals) {
    super(figure, setup, blocks);
    this.signals = setup.signals.map((signal, i) => ({ ...signal, columns: signals[i] }));
    this.background = this.signals.length ? 0 : -1;
    this.key = "facility";
    for (const choice of figure.querySelectorAll("select[data-choice]")) {
      choice.addEventListener("change", () => {
        if (choice.dataset.choice === "key") this.key = choice.value;
        else this.background = +choice.value;
        this.view.changed();
      });
    }
    this.draw();
  }

  box() {
    const box = super.box();
    return { ...box, width: box.width - (this.setup.signals.length ? RIGHT - 12 : 0) };
  }

  panel(pen, panel, box, colours) {
    const signal = this.signals?.[this.background];
    if (signal) this.area(pen, signal, box, colours);
    const scope = this.key === "it" ? "nodes" : "facility";
    super.panel(pen, { key: this.key ?? "facility", title: `power of the ${scope}, ${this.setup.unit}` }, box, colours);
  }

  /** Draw the signal as an area from 0 (prices may be negative), with its axis at the right. */
  area(pen, signal, box, colours) {
    const points = this.visiblePoints(signal, "value", box.width);
    let low = 0, high = 0;
    for (const [, mean] of points) { low = Math.min(low, mean); high = Math.max(high, mean); }
    if (high === low) high = low + 1;
    const { lo, hi } = this.view.x;
    const x = (t) => box.left + (t - lo) / (hi - lo) * box.width;
    const y = (value) => box.top + box.height * (1 - (value - low) / ((high - low) * 1.04));
    pen.save();
    pen.beginPath();
    pen.rect(box.left, box.top, box.width, box.height);
    pen.clip();
    pen.fillStyle = colour("behind");
    pen.beginPath();
    if (points.length) pen.moveTo(x(points[0][0]), y(0));
    for (const [at, mean, , , end] of points) { pen.lineTo(x(at), y(mean)); pen.lineTo(x(end), y(mean)); }
    if (points.length) pen.lineTo(x(points.at(-1)[4]), y(0));
    pen.fill();
    pen.restore();
    pen.fillStyle = colours.faint;
    pen.font = "12px system-ui, sans-serif";
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    for (const tick of roundTicks(low, high, box.height / 60)) pen.fillText(short(tick), box.left + box.width + 7, y(tick));
    pen.textAlign = "right";
    pen.textBaseline = "bottom";
    const label = `${signal.name}, ${signal.unit}`; // beside the title, if there is space for both
    const fits = pen.measureText(label).width < box.width + RIGHT - 12 - TITLE;
    pen.fillText(fits ? label : signal.unit, box.left + box.width + RIGHT - 12, box.top - 5);
  }

  select(at) {
    this.at = at;
    const read = (line, key) => {
      const bin = Math.floor((at - line.from) / (line.to - line.from) * line.bins);
      return bin < 0 || bin >= line.bins ? null : line.columns[key][bin];
    };
    const parts = [["at", this.clock.at(at)]];
    for (const signal of this.signals) {
      const value = read(signal, "value");
      if (value !== null) parts.push([signal.name, `${short(value)} ${signal.unit}`]);
    }
    for (const line of this.lines.filter((each) => each.shown)) {
      const [nodes, facility] = [read(line, "it"), read(line, "facility")];
      const words = nodes === null ? "no data" : `${short(facility)} ${this.setup.unit}, nodes ${short(nodes)} ${this.setup.unit}`;
      parts.push([line.label, words]);
    }
    showReadout(this.readout, parts);
    this.view.changed();
  }
}

/** Synchronize the time range of two charts of the same window. */
function synchronize(one, other) {
  const x = one.view.x, { from, to } = other.view.x;
  Object.assign(x, { from: Math.min(x.from, from), to: Math.max(x.to, to) });
  x.reset();
  other.view.x = x;
  for (const [mine, theirs] of [[one.view, other.view], [other.view, one.view]]) {
    mine.changed = () => { for (const view of [mine, theirs]) View.prototype.changed.call(view); };
    mine.changed();
  }
}

/** A promise that resolves when the chart is drawn. */
function whenReady(figure) {
  if (figure.dataset.ready) return Promise.resolve();
  return new Promise((done) => {
    const watch = new MutationObserver(() => { watch.disconnect(); done(); });
    watch.observe(figure, { attributeFilter: ["data-ready"] });
  });
}

async function beginPower(figure) {
  const setup = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
  const columns = (lines) => Promise.all(lines.map((line) => unpacked(line.block)));
  const chart = new PowerChart(figure, setup, await columns(setup.series), await columns(setup.signals));
  figure.dataset.ready = "yes";
  const along = setup.along && document.getElementById(setup.along);
  if (!along) return;
  await whenReady(along);
  synchronize(along.querySelector("canvas").chart, chart);
}

for (const figure of document.querySelectorAll("figure[data-energy]")) {
  beginPower(figure).catch((problem) => {
    figure.querySelector("output").textContent = `This chart needs a newer browser (${problem.message}).`;
    throw problem;
  });
}
