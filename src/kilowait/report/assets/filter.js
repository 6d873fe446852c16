// Filter of the jobs of a Gantt chart by submission, user and queue, and the waits of the chosen jobs under every policy.

const HIDDEN = 0.08; // opacity of jobs that the filter leaves out
const MANY = 3000; // maximum number of users to choose from, those with the most jobs

class JobFilter {
  constructor(figure, gantt) {
    this.gantt = gantt;
    this.box = figure.querySelector(".filter");
    this.results = figure.querySelector(".filtered");
    this.table = this.results.querySelector("tbody");
    this.controls = Object.fromEntries([...this.box.querySelectorAll("[data-filter]")].map((each) => [each.dataset.filter, each]));
    const { from, to, user, queue, clear } = this.controls, { setup, jobs } = gantt;
    const dated = setup.unix !== null, offset = dated ? setup.unix : setup.zero;
    const days = [jobs.submit[0], jobs.submit.at(-1)].map((at) => Math.floor((at * setup.tick + offset) / DAY));
    const written = (day) => (dated ? new Date(day * DAY * 1000).toISOString().slice(0, 10) : String(day));
    for (const [input, day] of [[from, days[0]], [to, days[1]]]) {
      input.type = dated ? "date" : "number";
      [input.min, input.max] = days.map(written);
      input.placeholder = written(day);
    }
    this.choices(user, jobs.user, (code) => gantt.user(code));
    if (queue) this.choices(queue, jobs.queue, (code) => (code < 0 ? "unknown" : setup.queues[code] ?? String(code)));
    for (const input of [from, to, user, queue]) input?.addEventListener("change", () => this.apply());
    clear.addEventListener("click", () => {
      for (const input of [from, to, user, queue]) if (input) input.value = "";
      this.apply();
    });
    this.box.hidden = false;
  }

  /** Fill a selection with the classes of a column, those with the most jobs first. */
  choices(select, column, name) {
    const counts = new Map();
    for (const code of column) counts.set(code, (counts.get(code) ?? 0) + 1);
    const codes = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a)).slice(0, MANY);
    select.append(...codes.map((code) => new Option(`${name(code)} (${grouped(counts.get(code))})`, code)));
  }

  /** Seconds since the begin of the chart of the begin of a day that was entered; NaN where none was. */
  dayBegin(input) {
    const { setup } = this.gantt;
    if (!input.value) return NaN;
    return setup.unix !== null ? Date.parse(`${input.value}T00:00:00Z`) / 1000 - setup.unix : Number(input.value) * DAY - setup.zero;
  }

  /** Mark the chosen jobs, draw the chart anew, and show their waits. */
  async apply() {
    const { gantt } = this, { jobs, setup } = gantt, { user, queue, from, to } = this.controls;
    const first = this.dayBegin(from), last = this.dayBegin(to) + DAY;
    const users = user.value, queues = queue?.value ?? "";
    const chosen = new Uint8Array(jobs.submit.length);
    for (let job = 0; job < chosen.length; job++) {
      const at = jobs.submit[job] * setup.tick;
      chosen[job] = !(at < first) && !(at >= last) && (users === "" || jobs.user[job] === +users) && (queues === "" || jobs.queue[job] === +queues);
    }
    this.chosen = chosen;
    gantt.opacity = Float32Array.from(chosen, (on, job) => (on ? gantt.baseOpacity(job) : HIDDEN));
    gantt.view.changed();
    this.results.hidden = ![from, to, user, queue].some((input) => input?.value);
    if (this.results.hidden) return; // the schedules of all policies are decoded only when they are needed
    const rows = [];
    for (let number = 0; number < setup.runs.length; number++) rows.push(this.row(setup.runs[number].label, await gantt.runOf(number)));
    if (this.chosen === chosen) this.table.replaceChildren(...rows); // unless the filter has changed meanwhile
  }

  /** A row of the table: the waits of the chosen jobs, without warm-up jobs, under one policy. */
  row(label, run) {
    const { setup } = this.gantt, seen = new Uint8Array(this.chosen.length), waits = [];
    let slowdowns = 0;
    for (let s = 0; s < run.job.length; s++) {
      const job = run.job[s];
      if (seen[job] || job < setup.warmup || !this.chosen[job]) continue;
      seen[job] = 1;
      waits.push(run.wait[s]);
      slowdowns += run.bsld[s];
    }
    waits.sort((a, b) => a - b);
    const mean = waits.reduce((sum, wait) => sum + wait, 0) / waits.length;
    const place = 0.99 * (waits.length - 1), low = waits[Math.floor(place)], high = waits[Math.ceil(place)];
    const p99 = low + (high - low) * (place - Math.floor(place));
    const cells = [grouped(waits.length), span(mean), span(p99), span(waits.at(-1)), short(slowdowns / waits.length)];
    const row = document.createElement("tr"), head = document.createElement("th");
    head.scope = "row";
    head.textContent = label;
    row.append(head, ...cells.map((text) => Object.assign(document.createElement("td"), { textContent: text })));
    return row;
  }
}
