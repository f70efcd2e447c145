"use strict";
// The page at /: text in, translation streamed in; all of it by the public API.

const WORDS = {
  en: {
    skip: "Skip to the text", docs: "API", source: "Text", target: "Translation", from: "From", to: "To",
    placeholder: "Type or paste a text", hint: "Type, paste, or drop a .txt, .md, .html, .srt, .po or .json file here.",
    go: "Translate", clear: "Clear", file: "Choose a file", copy: "Copy", copied: "Copied.", more: "Alternatives",
    save: "Save the translation of {0}", warnings: "Please check", others: "Alternatives", access: "API key",
    key: "Only where this server asks for one; kept until this tab is closed.", busy: "Translating …",
    done: "Done: {0} characters.", count: "{0} of {1} characters", timing: "{0} ms", none: "There are no others.",
    unreachable: "The server cannot be reached.", file_kind: "This file is not supported: .txt, .md, .html, .srt, .po, .json are.", line: "line {0}: ",
    file_text: "This file is not UTF-8 text.", document: "{0} is translated.", no_copy: "The browser did not allow copying.",
  },
  zh: {
    skip: "跳到文本", docs: "接口文档", source: "原文", target: "译文", from: "源语言", to: "目标语言",
    placeholder: "输入或粘贴文本", hint: "输入、粘贴文本,或将 .txt、.md、.html、.srt、.po、.json 文件拖到这里。",
    go: "翻译", clear: "清空", file: "选择文件", copy: "复制", copied: "已复制。", more: "其他译法",
    save: "保存 {0} 的译文", warnings: "请核对", others: "其他译法", access: "API 密钥",
    key: "仅在服务器要求时填写,关闭此标签页后即清除。", busy: "正在翻译……",
    done: "完成:{0} 个字符。", count: "{0} / {1} 个字符", timing: "{0} 毫秒", none: "没有其他译法。",
    unreachable: "无法连接服务器。", file_kind: "不支持此文件,可用 .txt、.md、.html、.srt、.po、.json。", line: "第 {0} 行：",
    file_text: "此文件不是 UTF-8 文本。", document: "{0} 翻译完成。", no_copy: "浏览器不允许复制。",
  },
};
const KINDS = {
  en: {
    length_cap: "cut off: too long", repetition: "repeats itself", number: "a number is missing",
    number_added: "a number was added", date: "a date differs", currency: "an amount differs",
    url: "an address differs", placeholder: "a placeholder differs", name: "a name is missing",
    length_ratio: "unusually short or long", untranslated: "left untranslated", unknown_token: "a character is missing",
    wrong_script: "not in the target language", structure: "left untranslated: its markup would break",
    error: "could not be translated", glossary: "a glossary term is missing",
  },
  zh: {
    length_cap: "译文过长被截断", repetition: "译文重复", number: "缺少数字", number_added: "多出数字", date: "日期不符",
    currency: "金额不符", url: "网址不符", placeholder: "占位符不符", name: "缺少名称", length_ratio: "译文过短或过长",
    untranslated: "未翻译", unknown_token: "缺少字符", wrong_script: "不是目标语言", structure: "未翻译：会破坏标记",
    error: "无法翻译", glossary: "缺少术语",
  },
};
const FORMATS = {
  txt: "text", md: "markdown", markdown: "markdown", html: "html", htm: "html", xhtml: "html", srt: "srt", po: "po",
  pot: "po", json: "json",
};
const $ = (id) => document.getElementById(id);
const PAUSE = 500; // milliseconds without a key before a translation begins

let tongue = remembered("onnxmt-tongue") || ((navigator.language || "").startsWith("zh") ? "zh" : "en");
let limit = 50000;
let running = null;
let timer = 0;
let saved = "";
let savedName = "";

function remembered(name) { try { return localStorage.getItem(name); } catch { return null; } }
function remember(name, value) { try { localStorage.setItem(name, value); } catch { /* a private window has no storage */ } }
function say(name, ...values) { return WORDS[tongue][name].replace(/\{(\d)\}/g, (_, n) => values[n]); }
function figure(value) { return value.toLocaleString(tongue); }
function empty(node) { node.replaceChildren(); return node; }
function item(text) { const node = document.createElement("li"); node.textContent = text; return node; }

function speak() {
  document.documentElement.lang = tongue === "zh" ? "zh-Hans" : "en";
  for (const node of document.querySelectorAll("[data-t]")) if (node.id !== "save") node.textContent = say(node.dataset.t);
  $("source").placeholder = say("placeholder");
  for (const id of ["from", "to"]) $(id).setAttribute("aria-label", say(id));
  for (const node of document.querySelectorAll("[data-kind]")) {
    node.textContent = KINDS[tongue][node.dataset.kind] || node.textContent;
  }
  $("tongue").textContent = tongue === "zh" ? "English" : "中文";
  $("tongue").lang = tongue === "zh" ? "en" : "zh-Hans";
  if (savedName) $("save").textContent = say("save", savedName);
  $("status").textContent = "";
  count();
}

function count() {
  $("count").textContent = say("count", figure([...$("source").value].length), figure(limit));
}

function headers() {
  const key = $("key").value.trim();
  return { "content-type": "application/json", ...(key ? { authorization: `Bearer ${key}` } : {}) };
}

function direction() {
  const found = {};
  if (!$("from").hidden && $("from").value) found.source = $("from").value;
  if (!$("to").hidden && $("to").value) found.target = $("to").value;
  return found;
}

function fail(message) {
  $("error").textContent = message;
  $("status").textContent = "";
}

async function call(path, body, signal) {
  let response;
  try {
    response = await fetch(path, { method: "POST", headers: headers(), body: JSON.stringify(body), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error(say("unreachable"));
  }
  if (!response.ok) {
    if (response.status === 401) $("access").open = true;
    const told = await response.json().catch(() => null);
    throw new Error(told && told.error ? told.error.message : `HTTP ${response.status}`);
  }
  return response;
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    waiting += value;
    for (let end = waiting.indexOf("\n\n"); end >= 0; end = waiting.indexOf("\n\n")) {
      const lines = waiting.slice(0, end).split("\n");
      waiting = waiting.slice(end + 2);
      yield { name: lines[0].slice(7), data: JSON.parse(lines[1].slice(6)) };
    }
  }
}

function begin() {
  clearTimeout(timer);
  if (running) running.abort();
  running = new AbortController();
  empty($("target"));
  $("target").classList.remove("busy");
  for (const id of ["warnings", "others"]) $(id).hidden = true;
  for (const id of ["copy", "more"]) $(id).disabled = true;
  empty($("warnings").querySelector("ul"));
  if (saved) URL.revokeObjectURL(saved);
  saved = savedName = "";
  $("save").hidden = true;
  for (const id of ["error", "status", "timing"]) $(id).textContent = "";
  return running.signal;
}

function warn(warnings, text) {
  if (!warnings.length) return;
  $("warnings").hidden = false;
  for (const one of warnings) {
    const quote = one.span && text ? `「${[...text].slice(...one.span).join("").slice(0, 60)}」 ` : "";
    const node = item(one.line ? say("line", figure(one.line)) : quote);
    const kind = node.appendChild(document.createElement("span"));
    kind.dataset.kind = one.kind;
    kind.textContent = KINDS[tongue][one.kind] || one.message;
    node.title = one.message;
    $("warnings").querySelector("ul").append(node);
  }
}

async function translate() {
  const text = $("source").value;
  const signal = begin();
  if (!text.trim()) return;
  $("status").textContent = say("busy");
  $("target").classList.add("busy");
  try {
    const response = await call("v1/translate/stream", { text, ...direction() }, signal);
    for await (const { name, data } of events(response)) {
      if (signal.aborted) return;
      if (name === "segment") {
        const node = document.createElement(data.warnings.length ? "mark" : "span");
        node.textContent = data.append ?? data.replace;
        if (data.replace !== undefined) empty($("target"));
        $("target").append(node);
        warn(data.warnings, text);
      } else if (name === "error") {
        throw new Error(data.error.message);
      } else {
        $("timing").textContent = say("timing", figure(Math.round(data.timing.total_ms)));
        $("status").textContent = say("done", figure([...data.text].length));
        for (const id of ["copy", "more"]) $(id).disabled = false;
      }
    }
  } catch (error) {
    if (error.name !== "AbortError") fail(error.message);
  } finally {
    if (!signal.aborted) $("target").classList.remove("busy");
  }
}

async function alternatives() {
  const list = empty($("others").querySelector("ol"));
  const signal = (running = new AbortController()).signal;
  $("status").textContent = say("busy");
  try {
    const response = await call("v1/translate", { text: $("source").value, alternatives: 3, ...direction() }, signal);
    const [found] = (await response.json()).translations;
    const texts = new Set(found.alternatives.map((one) => one.text));
    texts.delete(found.text);
    list.append(...[...texts].map(item));
    $("others").hidden = !texts.size;
    $("status").textContent = texts.size ? "" : say("none");
  } catch (error) {
    if (error.name !== "AbortError") fail(error.message);
  }
}

async function translateFile(file) {
  const signal = begin();
  const format = FORMATS[file.name.toLowerCase().split(".").pop()];
  if (!format) return fail(say("file_kind"));
  $("status").textContent = say("busy");
  try {
    let text;
    try {
      text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    } catch {
      return fail(say("file_text"));
    }
    const body = { text, format, ...direction() };
    const answer = await (await call("v1/translate", body, signal)).json();
    const [found] = answer.translations;
    $("target").textContent = found.text;
    warn(found.warnings, text);
    saved = URL.createObjectURL(new Blob([found.text], { type: format === "html" ? "text/html" : "text/plain" }));
    savedName = file.name;
    const dot = file.name.lastIndexOf(".");
    $("save").href = saved;
    $("save").download = `${file.name.slice(0, dot)}.${$("to").value || "translated"}${file.name.slice(dot)}`;
    $("save").textContent = say("save", file.name);
    $("save").hidden = false;
    $("copy").disabled = false;
    $("timing").textContent = say("timing", figure(Math.round(answer.timing.total_ms)));
    $("status").textContent = say("document", file.name);
  } catch (error) {
    if (error.name !== "AbortError") fail(error.message);
  }
}

async function copy() {
  try {
    await navigator.clipboard.writeText($("target").textContent);
    $("status").textContent = say("copied");
  } catch { // no permission, or a page that is not served over HTTPS
    const range = document.createRange();
    range.selectNodeContents($("target"));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    $("status").textContent = say(document.execCommand("copy") ? "copied" : "no_copy");
  }
}

function fill(select, languages, chosen) {
  empty(select);
  for (const [code, name] of Object.entries(languages)) select.append(new Option(name, code, false, code === chosen));
  select.hidden = Object.keys(languages).length < 2;
}

async function describe() {
  try {
    const response = await fetch("v1/models", { headers: headers() });
    if (response.status === 401) { $("access").open = true; return; }
    const [model] = (await response.json()).models;
    $("model").textContent = [model.name, model.version, model.precision].filter(Boolean).join(" · ");
    limit = model.limits.characters;
    fill($("from"), model.source_languages, model.default_source);
    fill($("to"), model.target_languages, model.default_target);
    $("target").lang = model.default_target;
    $("source").lang = model.default_source;
    count();
  } catch {
    fail(say("unreachable"));
  }
}

$("form").addEventListener("submit", (event) => { event.preventDefault(); translate(); });
$("source").addEventListener("input", () => { count(); clearTimeout(timer); timer = setTimeout(translate, PAUSE); });
$("source").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); translate(); }
});
for (const id of ["from", "to"]) {
  $(id).addEventListener("change", () => { $("target").lang = $("to").value || ""; translate(); });
}
$("clear").addEventListener("click", () => { $("source").value = ""; count(); begin(); $("source").focus(); });
$("copy").addEventListener("click", copy);
$("more").addEventListener("click", alternatives);
$("file").addEventListener("change", () => { if ($("file").files.length) translateFile($("file").files[0]); $("file").value = ""; });
$("tongue").addEventListener("click", () => { tongue = tongue === "zh" ? "en" : "zh"; remember("onnxmt-tongue", tongue); speak(); });
$("key").addEventListener("change", () => { try { sessionStorage.setItem("onnxmt-key", $("key").value); } catch { /* none */ } describe(); });
for (const name of ["dragover", "drop", "dragleave"]) {
  document.addEventListener(name, (event) => {
    event.preventDefault(); // else the browser opens a file that misses the field
    $("source").classList.toggle("over", name === "dragover");
    if (name === "drop" && event.dataTransfer.files.length) translateFile(event.dataTransfer.files[0]);
  });
}
try { $("key").value = sessionStorage.getItem("onnxmt-key") || ""; } catch { /* none */ }
speak();
describe();
