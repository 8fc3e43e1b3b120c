// The confusion matrix as a picture: a row for each class of targets, a column for what they are taken for.
import { useEffect, useRef, useState } from "preact/hooks";
import { useAnswer } from "../ask.js";
import { Card, Table, Waiting } from "../card.js";
import { palette, useTheme } from "../colours.js";
import { html } from "../html.js";
import { many, percent } from "../words.js";

const [LARGEST, SMALLEST, WRITTEN] = [44, 6, 26]; // pixels of a cell; from which on its count is written into it
const LISTED = 10; // mistakes below the picture

export function Confusion({ id, tick, facts }) {
  const [chosen, point] = useState(null);
  return html`<${Card} name="confusion" title="Which classes are taken for which" wide>${(seen) => {
    const answer = useAnswer("confusion", { run: id }, tick, seen);
    const data = answer.data;
    if (!data?.counts.length) return html`<${Waiting} answer=${answer} empty="No confusion matrix was recorded yet." />`;
    const sums = data.counts.map((row) => row.reduce((sum, count) => sum + (count ?? 0), 0));
    const mistakes = data.counts.flatMap((row, of) => row.map((count, taken) => ({ of, taken, count: count ?? 0 })))
      .filter(({ of, taken, count }) => of !== taken && count > 0).sort((a, b) => b.count - a.count);
    const say = ({ of, taken, count }) => [data.names[of], data.names[taken], many(count), percent(sums[of] ? count / sums[of] : 0)];
    const right = data.counts.reduce((sum, row, of) => sum + (row[of] ?? 0), 0);
    const total = sums.reduce((sum, one) => sum + one, 0);
    const shown = chosen && { ...chosen, count: data.counts[chosen.of]?.[chosen.taken] ?? 0 };
    return html`<p class="quiet">At step ${many(data.step)}: ${many(right)} of ${many(total)} are right. Rows are targets, columns what the network says; the stronger the colour, the larger the share of its row.</p>
      <${Picture} data=${data} sums=${sums} right=${right} total=${total} point=${point} />
      <p role="status" class="quiet">${shown ? `${say(shown)[2]} of ${data.names[shown.of]} are taken for ${data.names[shown.taken]}: ${say(shown)[3]}` : "Point at a cell to read it."}</p>
      ${mistakes.length > 0 && html`<details><summary>most frequent mistakes</summary><${Table} caption="the most frequent mistakes" right=${[2, 3]} head=${["target", "taken for", "count", "of its class"]} rows=${mistakes.slice(0, LISTED).map(say)} /></details>`}`;
  }}<//>`;
}

function Picture({ data, sums, right, total, point }) {
  const ref = useRef(null);
  const theme = useTheme();
  const count = data.names.length;
  const place = useRef({ left: 0, top: 0, cell: 1 });
  useEffect(() => {
    const canvas = ref.current;
    const draw = () => { place.current = paint(canvas, data, sums); };
    const watch = new ResizeObserver(draw);
    watch.observe(canvas.parentElement);
    draw();
    return () => watch.disconnect();
  }, [data, theme]);
  const look = (event) => {
    const { left, top, cell } = place.current;
    const [taken, of] = [Math.floor((event.offsetX - left) / cell), Math.floor((event.offsetY - top) / cell)];
    point(taken >= 0 && of >= 0 && taken < count && of < count ? { of, taken } : null);
  };
  return html`<div class="scroll" tabindex="0" role="region" aria-label="confusion matrix"><canvas ref=${ref} role="img" aria-label=${`Confusion matrix of ${count} classes: ${right} of ${total} are right`} onPointerMove=${look} onPointerLeave=${() => point(null)}></canvas></div>`;
}

// Square cells, names to the left and below; how large they are says where a pointer is.
function paint(canvas, { counts, names }, sums) {
  const ratio = window.devicePixelRatio || 1;
  const pen = canvas.getContext("2d");
  const font = "12px system-ui, sans-serif";
  pen.font = font;
  const label = Math.min(140, 10 + Math.max(...names.map((name) => pen.measureText(name).width)));
  const cell = Math.max(SMALLEST, Math.min(LARGEST, Math.floor((canvas.parentElement.clientWidth - label - 4) / names.length)));
  const side = cell * names.length;
  const below = cell >= 14 ? label : 4; // turned names, where there is room for a line
  [canvas.width, canvas.height] = [(label + side + 4) * ratio, (side + below + 4) * ratio];
  [canvas.style.width, canvas.style.height] = [`${label + side + 4}px`, `${side + below + 4}px`];
  const { ink, faint, dark } = palette();
  pen.scale(ratio, ratio);
  pen.font = font;
  for (const [of, row] of counts.entries()) {
    for (const [taken, count] of row.entries()) {
      const share = sums[of] ? (count ?? 0) / sums[of] : 0;
      const [x, y] = [label + taken * cell, 2 + of * cell];
      const strong = share ? 0.12 + 0.88 * Math.sqrt(share) : 0;
      pen.fillStyle = of === taken ? (dark ? `rgba(92,170,235,${strong})` : `rgba(0,90,160,${strong})`) : dark ? `rgba(255,122,61,${strong})` : `rgba(190,60,0,${strong})`;
      pen.fillRect(x, y, cell - 1, cell - 1);
      if (cell >= WRITTEN && count) {
        pen.fillStyle = strong > 0.55 && !dark ? "#ffffff" : ink;
        pen.textAlign = "center";
        pen.fillText(many(count), x + cell / 2, y + cell / 2 + 4, cell - 4);
      }
    }
  }
  pen.strokeStyle = faint;
  pen.strokeRect(label - 0.5, 1.5, side, side);
  pen.fillStyle = ink;
  for (const [at, name] of names.entries()) {
    if (cell < 14 && at % Math.ceil(14 / cell)) continue;
    pen.textAlign = "right";
    pen.fillText(name, label - 6, 2 + (at + 0.5) * cell + 4, label - 8);
    if (cell < 14) continue;
    pen.save();
    pen.translate(label + (at + 0.5) * cell + 4, side + 8);
    pen.rotate(-Math.PI / 2);
    pen.fillText(name, 0, 0, label - 8);
    pen.restore();
  }
  return { left: label, top: 2, cell };
}
