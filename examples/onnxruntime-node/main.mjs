// node main.mjs FOLDER < lines.txt: translate each line with the graph in FOLDER (onnxmt export --layout single).
// With --ids each line holds token ids, and ids are printed.

import fs from 'node:fs';
import path from 'node:path';
import * as ort from 'onnxruntime-node';
import { MarianTokenizer } from '../onnxruntime-web/marian.mjs';
import { translateIds } from '../onnxruntime-web/translate.mjs';

const BATCH = 8;
const [folder, flag] = process.argv.slice(2);
if (folder === undefined || (flag !== undefined && flag !== '--ids')) {
  console.error('usage: node main.mjs FOLDER [--ids] < lines.txt');
  process.exit(2);
}
const read = (name) => fs.readFileSync(path.join(folder, name));
const settings = JSON.parse(read('generation_config.json'));
const tokenizer = flag ? null : new MarianTokenizer(read('source.spm'), JSON.parse(read('vocab.json')));
// Severity 3: ONNX Runtime warns of each input that may be left out, which max_new_tokens is.
const session = await ort.InferenceSession.create(path.join(folder, 'model.onnx'), { logSeverityLevel: 3 });
const lines = fs.readFileSync(0, 'utf8').split('\n').filter((line) => line.trim() !== '');
for (let first = 0; first < lines.length; first += BATCH) {
  const sentences = lines
    .slice(first, first + BATCH)
    .map((line) => (tokenizer ? tokenizer.encode(line) : line.trim().split(/\s+/).map(Number)));
  for (const { ids } of await translateIds(ort, session, sentences, settings.pad_token_id)) {
    console.log(tokenizer ? tokenizer.decode(ids) : ids.join(' '));
  }
}
