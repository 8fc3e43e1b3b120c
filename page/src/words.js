// Numbers, times and sizes as people read them: the same words as the terminal's.
export function number(value) {
  if (value === null || value === undefined) return "–";
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size >= 1000 && size < 1e9) return Math.round(value).toLocaleString("en");
  return size >= 1e9 ? value.toPrecision(4).replace(/\.?0+e/, "e") : String(Number(value.toPrecision(4)));
}

export function many(value) {
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e4]]) {
    if (value >= size) return `${Number((value / (unit === "k" ? 1e3 : size)).toPrecision(3))} ${unit}`;
  }
  return value.toLocaleString("en");
}

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  let unit = 0;
  for (; bytes >= 1024 && unit < 4; unit++) bytes /= 1024;
  return unit ? `${bytes.toFixed(1)} ${["", "KiB", "MiB", "GiB", "TiB"][unit]}` : `${Math.round(bytes)} B`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  let left = Math.max(0, Math.round(seconds));
  const parts = [];
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
    const count = Math.floor(left / length);
    left %= length;
    if (count || parts.length || length === 1) parts.push(`${count} ${unit}`);
  }
  return parts.slice(0, 2).join(" ");
}

export function brief(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds >= 10) return `${seconds.toFixed(0)} s`;
  if (seconds >= 1) return `${seconds.toFixed(2)} s`;
  return seconds >= 0.001 ? `${Number((1000 * seconds).toPrecision(3))} ms` : `${Number((1e6 * seconds).toPrecision(3))} µs`;
}

export const percent = (share) => (share === null || share === undefined ? "–" : `${Math.round(100 * share)} %`);

const two = (value) => String(value).padStart(2, "0");

export function moment(at) {
  if (!at) return "–";
  const when = new Date(1000 * at);
  return `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())} ${two(when.getHours())}:${two(when.getMinutes())}`;
}

export function hour(at) {
  const when = new Date(1000 * at);
  return `${two(when.getHours())}:${two(when.getMinutes())}:${two(when.getSeconds())}`;
}

export const plural = (count, what) => `${many(count)} ${what}${count === 1 ? "" : "s"}`;

// 0–3, 6
export function ranges(numbers) {
  const parts = [];
  for (const number of numbers) {
    if (parts.length && parts.at(-1)[1] === number - 1) parts.at(-1)[1] = number;
    else parts.push([number, number]);
  }
  return parts.map(([first, last]) => (first === last ? first : `${first}–${last}`)).join(", ");
}

// The folder that all of these runs are in, with a slash; empty if there is none.
export function folderOf(ids) {
  const folder = ids[0].slice(0, ids[0].lastIndexOf("/") + 1);
  return ids.every((id) => id.startsWith(folder)) ? folder : "";
}
