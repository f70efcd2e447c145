// One graph of `onnxmt export --layout single` under ONNX Runtime, in Node or in a browser: ids in, ids out.

/** Translate sentences of token ids in one batch; → { ids, score } of each. `ort` is the package that runs the graph. */
export async function translateIds(ort, session, sentences, padding) {
  const rows = sentences.length;
  const width = Math.max(...sentences.map((ids) => ids.length));
  const inputIds = new BigInt64Array(rows * width).fill(BigInt(padding));
  const mask = new BigInt64Array(rows * width); // 1 = token, 0 = padding, which is on the right
  sentences.forEach((ids, row) => {
    ids.forEach((id, column) => {
      inputIds[row * width + column] = BigInt(id);
      mask[row * width + column] = 1n;
    });
  });
  const found = await session.run({
    input_ids: new ort.Tensor('int64', inputIds, [rows, width]),
    attention_mask: new ort.Tensor('int64', mask, [rows, width]),
  });
  const longest = found.output_ids.dims[1];
  return sentences.map((_, row) => ({
    ids: Array.from(found.output_ids.data.slice(row * longest, row * longest + Number(found.output_lengths.data[row])), Number),
    score: found.scores.data[row],
  }));
}
