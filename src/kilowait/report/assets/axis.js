// Formatting of times and numbers, axis ticks, and the page's colours for canvases.

const MINUTE = 60, HOUR = 3600, DAY = 86400;
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const STEPS = [1, 2, 5, 10, 15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE,
  HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 5 * DAY, 10 * DAY, 20 * DAY, 50 * DAY,
  100 * DAY, 200 * DAY, 500 * DAY, 1000 * DAY, 2000 * DAY, 5000 * DAY, 10000 * DAY];
const MONTH_STEPS = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200];

const two = (number) => String(Math.floor(number)).padStart(2, "0");
const grouped = (number) => Math.round(number).toLocaleString("en-US");

/** Format a duration with at most two units. */
function span(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 60) return `${+seconds.toPrecision(3)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${grouped(Math.floor(hours / 24))} d ${hours % 24} h`;
}

/** Format a number with three significant digits. */
function short(number) {
  if (!Number.isFinite(number)) return "–";
  return Math.abs(number) >= 1000 ? grouped(number) : String(+number.toPrecision(3));
}

/**
 * The time scale of a log. A chart counts seconds from `zero` (seconds of log time); `unix` is the same point in Unix
 * time, or null where the log has no start date.
 */
class Clock {
  constructor(zero, unix) { this.zero = zero; this.unix = unix; }

  /** Format a point in time. */
  at(seconds) {
    if (this.unix === null) {
      const since = this.zero + seconds, day = Math.floor(since / DAY), rest = since - day * DAY;
      return `day ${grouped(day)}, ${two(rest / HOUR)}:${two(rest % HOUR / MINUTE)}:${two(rest % MINUTE)}`;
    }
    const date = new Date((this.unix + seconds) * 1000);
    const clock = `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}:${two(date.getUTCSeconds())}`;
    return `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]} ${date.getUTCFullYear()}, ${clock}`;
  }

  /** About `most` ticks between two points in time: [seconds, label]. */
  ticks(lo, hi, most) {
    const wanted = (hi - lo) / most;
    if (this.unix !== null && wanted > 10 * DAY) return this.months(lo, hi, wanted);
    const step = STEPS.find((s) => s >= wanted) ?? STEPS.at(-1);
    const offset = this.unix ?? this.zero;
    const found = [];
    for (let t = Math.ceil((lo + offset) / step) * step; t - offset <= hi; t += step) {
      found.push([t - offset, this.unix === null ? this.relative(t, step) : this.dated(t, step)]);
    }
    return found;
  }

  relative(t, step) {
    const day = Math.floor(t / DAY), rest = t - day * DAY;
    if (step >= DAY) return `day ${grouped(day)}`;
    if (rest === 0) return `day ${grouped(day)}`;
    return `${two(rest / HOUR)}:${two(rest % HOUR / MINUTE)}${step < MINUTE ? ":" + two(rest % MINUTE) : ""}`;
  }

  dated(t, step) {
    const date = new Date(t * 1000);
    const day = `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]}`;
    if (step >= DAY || t % DAY === 0) return step >= DAY ? `${day} ${date.getUTCFullYear()}` : day;
    const seconds = step < MINUTE ? ":" + two(date.getUTCSeconds()) : "";
    return `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}${seconds}`;
  }

  months(lo, hi, wanted) {
    const step = MONTH_STEPS.find((s) => s * 30.4 * DAY >= wanted) ?? MONTH_STEPS.at(-1);
    const date = new Date((this.unix + lo) * 1000);
    const first = date.getUTCFullYear() * 12 + date.getUTCMonth();
    const found = [];
    for (let m = Math.ceil(first / step) * step; ; m += step) {
      const t = Date.UTC(Math.floor(m / 12), m % 12) / 1000 - this.unix;
      if (t > hi) return found;
      if (t >= lo) found.push([t, step >= 12 ? `${Math.floor(m / 12)}` : `${MONTHS[m % 12]} ${Math.floor(m / 12)}`]);
    }
  }
}

/** At most about `most` round numbers between `lo` and `hi`. */
function roundTicks(lo, hi, most) {
  const wanted = (hi - lo) / Math.max(most, 1);
  const power = 10 ** Math.floor(Math.log10(Math.max(wanted, 1e-9)));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= wanted);
  const found = [];
  for (let i = Math.ceil(lo / step); i * step <= hi * (1 + 1e-9); i++) found.push(i * step);
  return found;
}

/** The value of a CSS colour variable of the page in the current colour scheme. */
function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** Resize a canvas to its box and the screen resolution; returns its context, scaled to CSS pixels. */
function fitted(canvas) {
  const scale = Math.min(window.devicePixelRatio || 1, 2);
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "12px system-ui, sans-serif";
  return { pen, width, height, scale };
}

/** Draw the time axis below a plot, and its grid lines. */
function timeAxis(pen, clock, view, box, colours) {
  pen.textBaseline = "top";
  pen.lineWidth = 1;
  let free = -Infinity;
  for (const [t, words] of clock.ticks(view.x.lo, view.x.hi, Math.max(box.width / 110, 2))) {
    const x = Math.round(box.left + (t - view.x.lo) / (view.x.hi - view.x.lo) * box.width) + 0.5;
    pen.strokeStyle = colours.grid;
    pen.beginPath();
    pen.moveTo(x, box.top);
    pen.lineTo(x, box.top + box.height + 4);
    pen.stroke();
    const half = pen.measureText(words).width / 2;
    const middle = Math.min(Math.max(x, box.left + half - 24), box.left + box.width - half);
    if (middle - half < free) continue;
    free = middle + half + 10;
    pen.fillStyle = colours.faint;
    pen.textAlign = "center";
    pen.fillText(words, middle, box.top + box.height + 7);
  }
  // The position of the visible range within the full range.
  const whole = view.x.to - view.x.from;
  const y = box.top + box.height + 25;
  pen.fillStyle = colours.grid;
  pen.fillRect(box.left, y, box.width, 3);
  pen.fillStyle = colours.faint;
  const from = (view.x.lo - view.x.from) / whole * box.width;
  pen.fillRect(box.left + from, y, Math.max((view.x.hi - view.x.lo) / whole * box.width, 3), 3);
}
