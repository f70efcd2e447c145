// Translates with a folder that `onnxmt export MODEL --layout standard -o FOLDER` wrote.
//
//   node translate.mjs FOLDER "The library opens at nine."      text in, text out
//   node translate.mjs FOLDER --ids < ids.jsonl                 token ids in, token ids out: one JSON list a line
//
// With --ids no tokenizer is involved, so the answer is onnxmt's own greedy answer, token for token.
import path from "node:path";
import readline from "node:readline";
import { AutoModelForSeq2SeqLM, Tensor, env, pipeline } from "@huggingface/transformers";

const [folder, ...rest] = process.argv.slice(2);
if (!folder || rest.length === 0) {
  console.error("usage: node translate.mjs FOLDER TEXT…   or   node translate.mjs FOLDER --ids < FILE");
  process.exit(2);
}
env.allowRemoteModels = false;
env.localModelPath = path.dirname(path.resolve(folder));
const name = path.basename(path.resolve(folder));

if (rest[0] === "--ids") {
  const model = await AutoModelForSeq2SeqLM.from_pretrained(name);
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const ids = JSON.parse(line);
    const row = (values) => new Tensor("int64", BigInt64Array.from(values, BigInt), [1, values.length]);
    const output = await model.generate({
      inputs: row(ids),
      attention_mask: row(ids.map(() => 1)),
      num_beams: 1,
    });
    const tokens = Array.from(output.data, Number).slice(1); // without the start token
    console.log(JSON.stringify(tokens));
  }
} else {
  const translate = await pipeline("translation", name);
  for (const text of rest) {
    const [{ translation_text }] = await translate(text, { num_beams: 1 });
    console.log(translation_text);
  }
}
