import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { report, useAnswer, useLive } from "./ask.js";
import { Compare } from "./compare.js";
import { html } from "./html.js";
import "./page.css";
import { Queue } from "./queue.js";
import { Run } from "./run.js";
import { Runs } from "./runs.js";
import { Start } from "./start.js";
import { moment } from "./words.js";

// the token is in a cookie by now: it has no business in the address, which people copy
if (report && !location.hash) location.hash = report.start;
if (!report && location.search) history.replaceState(null, "", location.pathname + location.hash);

function place() {
  const [, view = "", rest = ""] = location.hash.match(/^#\/?(\w*)\/?(.*)$/) ?? [];
  return { view, rest: view === "compare" ? rest : decodeURI(rest) };
}

function usePlace() {
  const [now, set] = useState(place);
  useEffect(() => {
    const change = () => { set(place()); window.scrollTo(0, 0); };
    window.addEventListener("hashchange", change);
    return () => window.removeEventListener("hashchange", change);
  }, []);
  return now;
}

function All() {
  const [tick] = useLive();
  return html`<${Runs} answer=${useAnswer("runs", {}, tick)} />`;
}

function Page() {
  const { view, rest } = usePlace();
  useEffect(() => { document.title = rest ? `${decodeURIComponent(rest)} – Volary` : "Volary"; }, [rest]);
  return html`<nav aria-label="Volary"><a class="skip" href="#content" onClick=${(event) => { event.preventDefault(); document.querySelector("main")?.querySelector("a, button, input")?.focus(); }}>skip to content</a>
    <a href="#/" class="brand">Volary</a>${rest && html`<span aria-hidden="true">/</span> <span>${view === "compare" ? "compare" : rest}</span>`}</nav>
    ${report && html`<p class="quiet made">A report, made ${moment(report.made_at)} by <code>volary report</code>.</p>`}
    <div id="content">${view === "compare" ? html`<${Compare} key=${rest} ids=${rest.split(",").map(decodeURIComponent)} />` : view === "run" ? html`<${Run} key=${rest} id=${rest} />` : view === "new" ? html`<${Start} />` : view === "queue" ? html`<${Queue} />` : html`<${All} />`}</div>`;
}

render(html`<${Page} />`, document.getElementById("page"));
