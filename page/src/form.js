// A session as a form, made from the specification, with its YAML beside it: what is changed in one is changed in the other, tried at
// once, and refused in the session's own words.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useAnswer } from "./ask.js";
import { html } from "./html.js";

const TYPING_MS = 250; // after which what was typed is tried

// of: {session}, {run} or {text}. words: what the command line would say before the overrides. start: told the overrides, and
// {text, queue}: the text that they are on top of, if it is no file's, and whether the run waits in the queue.
export function SettingsForm({ of, words, verb, start, cancel }) {
  const [changed, change] = useState({});
  const [typed, type] = useState(of.text ?? null); // null: the text is the file's
  const [search, look] = useState("");
  const [under, wait] = useState("");
  const [refused, refuse] = useState("");
  const known = useRef([]);
  const now = useMemo(() => ({ overrides: Object.entries(changed).map(([name, value]) => `${name}=${value}`), typed }), [changed, typed]);
  const [settled, settle] = useState(now);
  useEffect(() => { const soon = setTimeout(() => settle(now), TYPING_MS); return () => clearTimeout(soon); }, [now]);
  const base = settled.typed === null ? of : { text: settled.typed };
  const answer = useAnswer("form", { ...base, set: settled.overrides }, 0);
  const plain = useAnswer("form", base, 0);
  if (!answer.data) return html`<p class=${answer.error ? "error" : "quiet"} role="status">${answer.error || "reading …"}</p>`;
  const { problems, text } = answer.data;
  if (answer.data.fields.length) known.current = answer.data.fields; // a text that cannot be read has none: the last ones stay
  const fields = known.current;
  const before = Object.fromEntries((plain.data?.fields ?? []).map((one) => [one.setting, one.value]));
  const set = (name, value) => change((old) => {
    const { [name]: _, ...rest } = old;
    return value === before[name] ? rest : { ...rest, [name]: value };
  });
  const write = (event) => { change({}); type(event.target.value); };
  const shown = fields.filter((one) => !one.setting.startsWith("run.folder") && (one.setting + one.note).toLowerCase().includes(search.toLowerCase()));
  const send = (queue) => (event) => {
    event.preventDefault();
    wait(`${verb} …`);
    refuse("");
    start(now.overrides, { text: now.typed, queue }).catch((error) => refuse(error.message)).finally(() => wait(""));
  };
  const named = new Set(shown.map((one) => one.setting));
  const apart = problems.filter((one) => !named.has(one.setting));
  const unready = problems.length > 0 || !!under || settled !== now;
  return html`<form class="settings" onSubmit=${send(false)}>
    <div class="tools"><label>Search <input type="search" value=${search} placeholder="a setting" onInput=${(event) => look(event.target.value)} /></label>
      <span role="status" class="quiet">${now.overrides.length ? `${now.overrides.length} changed` : "nothing changed"}${now.overrides.length > 0 && html` <button type="button" onClick=${() => change({})}>undo all</button>`}</span></div>
    <div class=${of.run ? "" : "beside"}><div class="sections">${groups(shown).map(([section, some]) => html`<fieldset key=${section}><legend>${section}</legend>
      ${some.map((one) => html`<${Field} key=${one.setting} field=${one} value=${changed[one.setting] ?? one.value} was=${one.setting in changed ? before[one.setting] : undefined}
        problem=${problems.find((problem) => problem.setting === one.setting)} set=${set} />`)}</fieldset>`)}</div>
      ${!of.run && html`<label class="yaml"><span class="quiet">the same as YAML</span><textarea spellcheck="false" wrap="off" value=${now.overrides.length || typed === null ? text : typed} onInput=${write}></textarea></label>`}</div>
    <div class="submit">
      ${apart.map((one) => html`<p class="error" role="alert">${[one.place, one.setting, one.sentence].filter(Boolean).join(": ")}</p>`)}
      ${refused && html`<p class="error said" role="alert">${refused}</p>`}
      <p class="quiet">the same in a terminal: <code>${[words, ...(typed === null ? now.overrides.map(quoted) : [])].join(" ")}</code></p>
      <div class="tools"><button type="submit" class="main" disabled=${unready}>${under || verb}</button>${!of.run && html`<button type="button" disabled=${unready} onClick=${send(true)}>Submit to the queue</button>`}${cancel && html`<button type="button" onClick=${cancel}>Cancel</button>`}</div>
    </div>
  </form>`;
}
function Field({ field, value, was, problem, set }) {
  const name = field.setting;
  const about = `${name}-about`;
  const none = '""'; // text without a letter, as YAML has it
  const input = field.choices.length
    ? html`<select id=${name} aria-describedby=${about} onChange=${(event) => set(name, event.target.value)}>${(field.choices.includes(value) ? [] : [value]).concat(field.choices).map((one) => html`<option value=${one} selected=${one === value}>${one}</option>`)}</select>`
    : html`<input id=${name} aria-describedby=${about} aria-invalid=${problem ? "true" : "false"} value=${value === none ? "" : value} onInput=${(event) => set(name, event.target.value === "" && field.accepted === "text" ? none : event.target.value)} />`;
  return html`<div class=${`field${was === undefined ? "" : " changed"}`}>
    <label for=${name}>${name.split(".").slice(1).join(".") || name}</label>${input}
    <span id=${about} class="quiet">${problem ? html`<span class="error" role="alert">${problem.sentence}</span>` : html`${was !== undefined && html`<b>was ${was === none ? "empty" : was}</b> `}${field.note || field.accepted}`}</span>
  </div>`;
}

function groups(fields) {
  const found = new Map();
  for (const one of fields) {
    const section = one.setting.split(".")[0];
    if (!found.has(section)) found.set(section, []);
    found.get(section).push(one);
  }
  return [...found];
}

const quoted = (text) => (/^[\w.=:/+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
