// Decode columns as interactive.py packs them: base64 of deflated byte planes, described in the element's data-columns.

const KINDS = { i: Int32Array, f: Float32Array, g: Float64Array };

/** Return the columns of a data block by name, as typed arrays. */
async function unpacked(id) {
  const block = document.getElementById(id);
  const text = atob(block.textContent.trim());
  const deflated = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) deflated[i] = text.charCodeAt(i);
  const stream = new Blob([deflated]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const columns = {};
  let at = 0;
  for (const [name, kind, length, differences] of JSON.parse(block.dataset.columns)) {
    const values = new KINDS[kind](length);
    const size = values.BYTES_PER_ELEMENT;
    const valueBytes = new Uint8Array(values.buffer);
    // The first bytes of all values come first, then all second bytes, which compresses better.
    for (let plane = 0; plane < size; plane++) {
      for (let i = 0, to = plane; i < length; i++, to += size) valueBytes[to] = bytes[at++];
    }
    if (differences) for (let i = 1; i < length; i++) values[i] += values[i - 1];
    columns[name] = values;
  }
  return columns;
}
