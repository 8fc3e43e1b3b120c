// Colours that people who see few of them tell apart (Okabe & Ito), on light and on dark.
import { useEffect, useState } from "preact/hooks";

export const PHASES = [
  ["data", "data", "#e69f00"],
  ["forward", "forward", "#56b4e9"],
  ["backward", "backward", "#0072b2"],
  ["exchange", "communication", "#d55e00"],
  ["optimizer", "optimiser", "#009e73"],
];
export const REST = "#8a8f98";
export const SERIES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6fd1", "#7a7f87"];
const dark = window.matchMedia("(prefers-color-scheme: dark)");

export function palette() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  return { ink: of("--ink"), faint: of("--line"), paper: of("--card"), dark: dark.matches };
}

export const line = (colour) => (dark.matches && colour === "#0072b2" ? "#4aa3df" : colour);

// A value that changes when the page turns dark or light, for what is drawn on canvas.
export function useTheme() {
  const [theme, set] = useState(dark.matches);
  useEffect(() => {
    const change = () => set(dark.matches);
    dark.addEventListener("change", change);
    return () => dark.removeEventListener("change", change);
  }, []);
  return theme;
}

// From nothing over amber to red: more is worse.
export function heat(share) {
  if (share === null) return null;
  const at = Math.max(0, Math.min(1, share));
  const [low, high] = dark.matches ? [[38, 50, 66], [255, 122, 61]] : [[232, 239, 246], [190, 60, 0]];
  return `rgb(${low.map((value, part) => Math.round(value + at * (high[part] - value))).join(",")})`;
}
