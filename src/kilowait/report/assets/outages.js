// Hatching of unavailable nodes behind the jobs of a Gantt chart. Included only in pages with outages.

const plainRows = Gantt.prototype.rowAxis;

Gantt.prototype.rowAxis = function rowAxis(pen, box, colours) {
  const { x, y } = this.view;
  const sx = box.width / (x.hi - x.lo), sy = box.height / (y.hi - y.lo);
  pen.save();
  pen.beginPath();
  pen.rect(box.left, box.top, box.width, box.height);
  pen.clip();
  pen.beginPath();
  for (const [from, to, nodes] of this.setup.outages ?? []) {
    if (to < x.lo || from > x.hi) continue;
    const left = Math.max(box.left + (from - x.lo) * sx, box.left), right = Math.min(box.left + (to - x.lo) * sx, box.left + box.width);
    const top = box.top + (y.hi - this.setup.rows) * sy;
    pen.rect(left, top, Math.max(right - left, 1), nodes * sy);
  }
  pen.globalAlpha = 0.35;
  pen.fillStyle = colours.grid;
  pen.fill();
  pen.globalAlpha = 1;
  pen.clip();
  pen.strokeStyle = colours.faint;
  pen.lineWidth = 0.8;
  pen.beginPath();
  for (let at = box.left - box.height; at < box.left + box.width; at += 7) {
    pen.moveTo(at, box.top + box.height);
    pen.lineTo(at + box.height, box.top);
  }
  pen.stroke();
  pen.restore();
  plainRows.call(this, pen, box, colours);
};
