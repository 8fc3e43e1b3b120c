// Questions to the server, or, in a report, to the data that it brought along.
import { useEffect, useRef, useState } from "preact/hooks";

const brought = document.getElementById("volary-report");
export const report = brought && JSON.parse(brought.textContent);

// one answer for each: a report has all steps, and is searched here
const key = (name, { run = "", name: metric = "", rank = metric }) => [name, run, rank, ""].join("|");

export async function ask(name, words, signal) {
  if (report) {
    const found = report.answers[key(name, words)];
    if (found === undefined) throw new Error("this is not in the report");
    return found;
  }
  if ("text" in words) return act("draft", {}, { text: words.text, overrides: words.set ?? [] }); // a text is no word of an address
  const said = Object.entries(words).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const all = said.flatMap(([one, value]) => (Array.isArray(value) ? value.map((each) => [one, each]) : [[one, value]]));
  const answer = await fetch(`/api/${name}?${new URLSearchParams(all)}`, { signal });
  if (!answer.ok) throw new Error((await answer.text()).trim() || answer.statusText);
  return answer.json();
}

// {data, error}: asked anew when `words` or `tick` change, and only while `active`; the old answer stays meanwhile. A question that
// is under way is answered first, unless its words are no longer those that are wanted.
export function useAnswer(name, words, tick, active = true) {
  const [state, set] = useState({ data: null, error: "" });
  const under = useRef({ answered: "", way: null, words: "" });
  const wanted = JSON.stringify(words);
  const now = `${wanted} ${tick}`;
  useEffect(() => {
    const mine = under.current;
    if (!active || mine.answered === now || (mine.way && mine.words === wanted)) return;
    mine.way?.abort();
    const way = new AbortController();
    Object.assign(mine, { way, words: wanted });
    const end = (next) => {
      if (mine.way !== way) return;
      Object.assign(mine, { way: null, answered: now });
      set(next);
    };
    ask(name, words, way.signal).then((data) => end({ data, error: "" }), (error) => end((old) => ({ ...old, error: error.message })));
  }, [now, active, state]);
  useEffect(() => () => { under.current.way?.abort(); under.current.way = null; }, []);
  return state;
}

// Change something of a run, or start one; raises what the server says if it may not be.
export async function act(name, words, body) {
  const answer = await fetch(`/api/${name}?${new URLSearchParams(words)}`, { method: "POST", body: body && JSON.stringify(body) });
  if (!answer.ok) throw new Error((await answer.text()).trim() || answer.statusText);
  return answer.status === 204 ? null : answer.json();
}

const FIRST_MS = 700; // a stream begins by saying that something has changed: what is being drawn is not asked for twice
const BETWEEN_MS = 300; // two looks of the page: what changes oftener is drawn once

// A number that grows whenever what `words` names has changed (`run=...`, `queue`; or any run), and whether the server is there.
export function useLive(words = "") {
  const [tick, set] = useState(0);
  const [there, setThere] = useState(true);
  useEffect(() => {
    if (report) return undefined;
    let waiting = null;
    let last = performance.now() + FIRST_MS;
    const due = () => { waiting = null; last = performance.now(); set((n) => n + 1); };
    const source = new EventSource(`/api/live?${words}`);
    source.addEventListener("changed", () => {
      waiting ??= setTimeout(due, Math.max(0, last + BETWEEN_MS - performance.now()));
    });
    source.onopen = () => setThere(true);
    source.onerror = () => setThere(false);
    return () => { source.close(); clearTimeout(waiting); };
  }, [words]);
  return [tick, there];
}
