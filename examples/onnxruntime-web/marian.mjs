// The tokenizer of a Marian model (source.spm, vocab.json) in plain JavaScript, for Node and browsers.
//
// It reads the SentencePiece model itself. One step is simpler than in SentencePiece: text is normalised by NFKC instead
// of the table inside the model (nmt_nfkc), which treats a few rare characters otherwise. README.md says how often.

const MARK = '\u2581'; // stands for a space in pieces
const NORMAL = 1;
const USER_DEFINED = 4;
const UNKNOWN_PENALTY = 10; // SentencePiece: an unknown character scores 10 less than the worst piece

/** Yield [field number, value] of a protobuf message: bytes of length-delimited fields, and the bits of the others. */
function* fields(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const varint = () => {
    let value = 0;
    for (let shift = 1; ; shift *= 128) {
      const byte = bytes[at++];
      value += (byte & 127) * shift;
      if (byte < 128) return value;
    }
  };
  while (at < bytes.length) {
    const tag = varint();
    const kind = tag & 7;
    if (kind === 0) yield [tag >> 3, varint()];
    else if (kind === 5) yield [tag >> 3, view.getFloat32((at += 4) - 4, true)];
    else if (kind === 1) yield [tag >> 3, view.getFloat64((at += 8) - 8, true)];
    else if (kind === 2) {
      const length = varint();
      yield [tag >> 3, bytes.subarray(at, (at += length))];
    } else throw new Error(`source.spm holds a field of kind ${kind}: it is not a SentencePiece model`);
  }
}

function readPieces(bytes) {
  const scores = new Map();
  const text = new TextDecoder();
  let longest = 1;
  let worst = 0;
  for (const [field, value] of fields(bytes)) {
    if (field !== 1) continue; // 1 = pieces
    let piece = '';
    let score = 0;
    let kind = NORMAL;
    for (const [inner, found] of fields(value)) {
      if (inner === 1) piece = text.decode(found);
      else if (inner === 2) score = found;
      else if (inner === 3) kind = found;
    }
    if (kind !== NORMAL && kind !== USER_DEFINED) continue;
    scores.set(piece, score);
    worst = Math.min(worst, score);
    longest = Math.max(longest, [...piece].length);
  }
  return { scores, longest, worst };
}

export class MarianTokenizer {
  /** `spm`: the bytes of source.spm; `vocabulary`: vocab.json as an object. */
  constructor(spm, vocabulary) {
    this.pieces = readPieces(spm);
    this.vocabulary = vocabulary;
    this.eos = vocabulary['</s>'];
    this.unknown = vocabulary['<unk>'];
    this.special = new Set([this.eos, this.unknown, vocabulary['<pad>']]);
    this.byId = new Map(Object.entries(vocabulary).map(([piece, id]) => [id, piece]));
  }

  /** Ids of a text with </s> at the end. `target`, such as "deu", names the target of a model with several. */
  encode(text, target) {
    const code = target === undefined ? [] : [this.vocabulary[`>>${target}<<`]];
    if (code.includes(undefined)) throw new Error(`the model has no target language ${target}`);
    const found = this.split(text).map((piece) => this.vocabulary[piece] ?? this.unknown);
    return [...code, ...found, this.eos];
  }

  /** The likeliest pieces of a text (Viterbi search over the unigram model). */
  split(text) {
    const clean = text.normalize('NFKC').trim().replace(/\s+/gu, ' ');
    if (clean === '') return [];
    const characters = [...(MARK + clean.replaceAll(' ', MARK))];
    const { scores, longest, worst } = this.pieces;
    const best = [{ score: 0, from: -1, known: true }];
    for (let end = 1; end <= characters.length; end++) {
      let found = { score: -Infinity };
      let piece = '';
      for (let start = end - 1; start >= Math.max(0, end - longest); start--) {
        piece = characters[start] + piece;
        let score = scores.get(piece);
        const known = score !== undefined;
        if (!known && start === end - 1) score = worst - UNKNOWN_PENALTY;
        if (score !== undefined && best[start].score + score > found.score) {
          found = { score: best[start].score + score, from: start, known };
        }
      }
      best.push(found);
    }
    const pieces = [];
    let after = false; // neighbouring unknown characters are one piece
    for (let end = characters.length; end > 0; end = best[end].from) {
      const piece = characters.slice(best[end].from, end).join('');
      if (!best[end].known && after) pieces[0] = piece + pieces[0];
      else pieces.unshift(piece);
      after = !best[end].known;
    }
    return pieces;
  }

  /** The text of generated ids. */
  decode(ids) {
    const kept = ids.filter((id) => !this.special.has(id));
    return kept.map((id) => this.byId.get(id)).join('').replaceAll(MARK, ' ').trim();
  }
}
