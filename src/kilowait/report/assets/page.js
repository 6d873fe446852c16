// Starts the charts and switches between the light and the dark colour scheme.

const button = document.getElementById("scheme");
button.hidden = false;
button.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.scheme ? root.dataset.scheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.scheme = dark ? "light" : "dark";
  button.textContent = dark ? "Dark" : "Light";
  redraw();
});
if (matchMedia("(prefers-color-scheme: dark)").matches) button.textContent = "Light";
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

function redraw() {
  for (const canvas of document.querySelectorAll("canvas")) canvas.chart?.view.changed();
}

async function begin(figure) {
  const setup = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
  if (figure.dataset.chart === "gantt") {
    const gantt = new Gantt(figure, setup, await unpacked(setup.jobs));
    await gantt.ready;
    new JobFilter(figure, gantt);
  } else {
    new SeriesChart(figure, setup, await Promise.all(setup.series.map((line) => unpacked(line.block))));
  }
  figure.dataset.ready = "yes";
}

for (const figure of document.querySelectorAll("figure[data-chart]")) {
  begin(figure).catch((problem) => {
    figure.querySelector("output").textContent = `This chart needs a newer browser (${problem.message}).`;
    throw problem;
  });
}
